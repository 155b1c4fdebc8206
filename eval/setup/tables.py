"""The result of ``eval setup`` in the terminal: short, and readable without the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolscout.eval.setup.text import clean, headline, names_of, never_says, pair_says, percent, short_id
from toolscout.eval.setup.verdict import CHANGES
from toolscout.records import JsonObject

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 8


class Lines:
    """A titled table whose columns named in ``right`` stand to the right; or, without a head, sentences."""

    def __init__(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
    ) -> None:
        self.title, self.head, self.rows, self.right = title, head, rows, right

    def rich(self) -> RenderableType:
        """For the terminal; foreign text is printed as it is, never as markup."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=self.title or None,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD if self.head else None,
            show_header=bool(self.head),
            pad_edge=False,
        )
        for name in self.head or [""] * max(map(len, self.rows), default=1):
            table.add_column(name, justify="right" if name in self.right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(clean(cell)) for cell in row))
        return table


def setup_tables(result: JsonObject) -> list[Lines]:
    """Headline, servers, changes, and the worst of each kind."""
    names = names_of(result)
    tables = [Lines("", [], [[line] for line in [*headline(result), *result["notes"]]])]
    if not result["n"]["searchable"]:
        return tables
    tables.append(_servers(result))
    if result["changes"]:
        rows = [[f"{i}.", c["text"], _gain(c)] for i, c in enumerate(result["changes"][:CHANGES], 1)]
        tables.append(Lines("What would help most", ["", "change", "gain"], rows))
    pairs = result["confusable"]["pairs"]
    if pairs:
        rows = [
            [*(short_id(t, names) for t in p["tools"]), pair_says(p), percent(p["told_apart"])] for p in pairs[:_SHOWN]
        ]
        title = f"Confusable: {len(pairs)} pairs" + (f", the worst {_SHOWN}" if len(pairs) > _SHOWN else "")
        tables.append(Lines(title, ["tool", "and", "", "told apart"], rows, ["told apart"]))
    broken = {rule: n for rule, n in result["descriptions"]["by_rule"].items() if n}
    if broken:
        says = {f["rule"]: f["says"] for f in result["descriptions"]["findings"]}
        rows = [[says[rule], str(n)] for rule, n in sorted(broken.items(), key=lambda item: -item[1])]
        tables.append(Lines("Badly described", ["rule", "tools that break it"], rows, ["tools that break it"]))
    lost = result["not_found"]
    if lost:
        rows = [[short_id(m["tool_id"], names), m["request"][:90], _rank(m)] for m in lost[:_SHOWN]]
        title = f"Not found by their own words: {len(lost)} tools"
        tables.append(Lines(title, ["tool", "asked", "place"], rows, ["place"]))
    tables.append(Lines("", [], [[never_says(result)]]))
    return tables


def _servers(result: JsonObject) -> Lines:
    tokens = {row["server_id"]: row for row in result["context"]["by_server"]}
    rows = []
    for row in result["verdicts"]:
        cost = tokens.get(row["server_id"])
        rows.append(
            [
                row["name"],
                "-" if row["letter"] is None else f"{row['letter']}  {row['score']}",
                str(row["tools"]) + (f" + {row['held_back']} held back" if row["held_back"] else ""),
                f"{cost['tokens']:,}" if cost else "-",
                *(percent(row[key]) for key in ("found", "distinct", "described")),
            ]
        )
    whole = result["verdict"]
    rows.append(
        [
            "all",
            f"{whole['letter']}  {whole['score']}",
            str(result["n"]["searchable"]),
            f"{result['context']['all_definitions']:,}",
            *(percent(whole[key]) for key in ("found", "distinct", "described")),
        ]
    )
    head = ["server", "mark", "tools", "tokens", "found", "distinct", "described"]
    return Lines("Servers, worst first", head, rows, head[2:])


def _gain(change: JsonObject) -> str:
    saved = f", {change['tokens']:,} tokens" if change["tokens"] else ""
    return f"{'up to ' if change['kind'] == 'tell_apart' else ''}{change['points']:+.1f} points{saved}"


def _rank(miss: JsonObject) -> str:
    place = "beyond 20" if miss["rank"] is None else str(miss["rank"])
    return f"{place}, refused" if miss["refused"] else place
