"""The report of a run as one page: no network, no script, no build step; everything in it is escaped.

It is made of what lies in the folder (`toolscout.synth.report_folder`), at any time: a run writes it at its end, and
``toolscout synth report`` makes it anew, with other files to compare, or of a run that has not come to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolscout.files import replace_file, write_json
from toolscout.index.encoder import Encoder
from toolscout.records import JsonObject
from toolscout.synth.report_charts import GROUPS, cloud, legend, number, table, text
from toolscout.synth.report_facts import Sample, facts, mean_distance, sample_of
from toolscout.synth.report_folder import RunSeen, read_run
from toolscout.synth.report_plots import FAILED, Plane, one_line, planes
from toolscout.synth.report_rows import NO_CATEGORY, Row, rows_of_file
from toolscout.synth.report_sections import costs, drops, funnel, made_with, others, shapes, to_read
from toolscout.synth.report_style import STYLE

PAGE = "report.html"

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Were anything to slip through: no browser runs it or fetches anything for it."""


@dataclass(frozen=True)
class Spread:
    """How various the rows of one place are: ``distance`` and half of its 95 % interval, None where not measured."""

    name: str
    rows: list[Row]
    sampled: int
    distance: tuple[float, float] | None

    def to_dict(self) -> JsonObject:
        """As one JSON object."""
        return {
            "name": self.name,
            **facts(self.rows, server_of=_server_of),
            "sampled": self.sampled,
            "mean_cosine_distance": round(self.distance[0], 4) if self.distance else None,
            "plus_minus": round(self.distance[1], 4) if self.distance else None,
        }


def write_page(
    folder: Path,
    *,
    encoder: Encoder | None = None,
    compare: Sequence[Path] = (),
    categories: Mapping[str, str] | None = None,
    page: Path | None = None,
    tick: Callable[[float, float | None], None] | None = None,
) -> JsonObject:
    """Write the page of the run in a folder; returns what it says in numbers.

    :param encoder: for distances and plots; without one the page has none.
    :param compare: files of rows whose figures stand beside the run's.
    :param categories: of servers by id, for folders that do not know them.
    :param page: where to; ``report.html`` in the folder by default.
    :param tick: called with the parts that are done and all of them.
    :raises BadInput: there is no run in the folder, or a file to compare cannot be read.
    :raises NotFound: a file to compare does not exist.
    :raises StorageError: the page cannot be written.
    """
    tell = tick or (lambda done, total: None)
    total = len(compare) + 3
    run = read_run(folder, categories)
    read = list(zip(_named(compare), [rows_of_file(path, categories) for path in compare], strict=True))
    tell(1, total)
    sample = sample_of(run.rows, encoder) if encoder is not None else None
    spreads = [_spread(f"this run ({run.name})", run.rows, sample)]
    for n, (name, rows) in enumerate(read):
        spreads.append(_spread(name, rows, sample_of(rows, encoder) if encoder is not None else None))
        tell(n + 2, total)
    drawn = planes(sample.vectors) if sample is not None else []
    replace_file(page or folder / PAGE, render(run, spreads, sample, drawn))
    tell(total, total)
    return {
        "folder": run.name,
        "finished": run.finished,
        "steps": [
            {
                "step": s.step,
                "inputs": s.inputs,
                "made": s.made,
                "waiting": s.waiting,
                "dropped": dict(sorted(s.dropped.items())),
            }
            for s in run.steps
        ],
        "spent": run.spent,
        "kept": spreads[0].to_dict(),
        "compared": [s.to_dict() for s in spreads[1:]],
        "plots": {p.name: p.why_not or "drawn" for p in drawn},
    }


def page_at_the_end(folder: Path, report: JsonObject, encoder: Encoder | None) -> None:
    """The page of a run that has just ended; data is not lost for the sake of a page that cannot be made, whatever the
    libraries that draw it raise. What is lacking is said in the report's remarks."""
    try:
        plots = write_page(folder, encoder=encoder)["plots"]
        said = [f"{name} is not in the page. {why}" for name, why in plots.items() if why.startswith(FAILED)]
    except Exception as error:
        with suppress(OSError):
            (folder / PAGE).unlink(missing_ok=True)  # an older one would tell of another run
        said = [f"The page {PAGE} could not be made: {one_line(error)}. To try again: toolscout synth report {folder}"]
    if said:
        report["remarks"] = [*report["remarks"], *said]
        write_json(folder / "report.json", report)


def render(run: RunSeen, spreads: Sequence[Spread], sample: Sample | None, drawn: Sequence[Plane]) -> str:
    """The page, as HTML."""
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">',
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>Synthesis report: {text(run.name)}</title><style>{STYLE}</style></head><body>",
        f"<header><h1>Synthesis report</h1><p class=soft>{text(run.name)}</p></header>",
        _state(run),
        _headline(run, spreads[0]),
        "<nav aria-label=Sections><a href=#funnel>Steps</a><a href=#cost>Price</a><a href=#rows>What rows are like</a>"
        "<a href=#diversity>Diversity</a><a href=#read>Samples to read</a><a href=#settings>Settings</a></nav><main>",
        "<h2 id=funnel>Steps</h2>",
        *funnel(run),
        *drops(run),
        "<h2 id=cost>Price and tokens</h2>",
        *costs(run),
        f"<h2 id=rows>What the {'kept' if run.finished else ''} rows are like</h2>",
        *shapes(run.rows),
        "<h2 id=diversity>Diversity</h2>",
        _distances(spreads),
        *_plots(sample, drawn),
        "<h2 id=read>Samples to read</h2>",
        *to_read(run),
        "<h2 id=settings>Settings</h2>",
        *made_with(run),
        *others(run),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _state(run: RunSeen) -> str:
    if run.finished:
        return ""
    said = f"The rows below are what its step “{text(run.rows_from)}” has made so far." if run.rows_from else ""
    return (
        f"<p class=state>The run has not come to its end. {said} The same command goes on with it; "
        "<code>toolscout synth report</code> makes this page anew.</p>"
    )


def _headline(run: RunSeen, own: Spread) -> str:
    counted = own.to_dict()
    price = sum(float(s.get("price", 0)) for s in run.spent.values())
    tokens = sum(int(s.get("prompt_tokens", 0)) + int(s.get("completion_tokens", 0)) for s in run.spent.values())
    figures = [
        (number(counted["calls"]), "rows kept" if run.finished else "rows so far"),
        (number(counted["tools"]), "tools"),
        (number(counted["servers"]), "servers"),
        (number(len(run.losses)), "dropped"),
        (number(counted["mean_cosine_distance"]), "mean cosine distance"),
    ]
    if run.spent:
        figures += [(number(tokens), "tokens"), (number(round(price, 4)), "spent")]
    return "<ul class=figures>" + "".join(f"<li><b>{n}</b><span>{text(t)}</span></li>" for n, t in figures) + "</ul>"


def _distances(spreads: Sequence[Spread]) -> str:
    if all(s.distance is None for s in spreads):
        return (
            "<p>Not measured: the run needed no encoder, or there are fewer than two instructions. "
            "<code>toolscout synth report FOLDER</code> measures it.</p>"
        )
    rows = []
    for spread in spreads:
        made = spread.to_dict()
        words = made["words"] or {}
        rows.append(
            [
                text(spread.name),
                number(made["mean_cosine_distance"]),
                f"± {spread.distance[1]:.4f}" if spread.distance else "–",
                number(spread.sampled),
                number(made["calls"]),
                number(made["tools"]),
                number(words.get("p50")),
            ]
        )
    head = ["", "mean cosine distance", "95 % interval", "of so many", "rows", "tools", "words, median"]
    return (
        table("Mean cosine distance of all pairs of at most 1,000 instructions, drawn by their ids", head, rows)
        + "<p class=soft>0: all alike; 1: no two have anything in common. Figures of one encoder only can be compared, "
        "and more tools alone make for more distance.</p>"
    )


def _plots(sample: Sample | None, drawn: Sequence[Plane]) -> list[str]:
    if sample is None:
        return ["<p>No plots: the run needed no encoder. <code>toolscout synth report FOLDER</code> draws them.</p>"]
    of, by = _groups(sample.rows)
    sizes: dict[str, int] = {}
    for name in of:
        sizes[name] = sizes.get(name, 0) + 1
    order = sorted(sizes, key=lambda name: (-sizes[name], name))
    place = {name: n if n < GROUPS else -1 for n, name in enumerate(order)}
    names = [(name, place[name], sizes[name]) for name in order if place[name] >= 0]
    rest = [name for name in order if place[name] < 0]
    if rest:
        names.append((f"{len(rest)} others", -1, sum(sizes[name] for name in rest)))
    labels = [f"{name}: {row.text[:140]}" for row, name in zip(sample.rows, of, strict=True)]
    groups = [place[name] for name in of]
    parts = [f"<h3>{number(len(sample.rows))} instructions by {by}</h3>", legend(names), "<div class=grid3>"]
    for plane in drawn:
        if plane.points is None:
            parts.append(f"<figure><figcaption>{text(plane.name)}</figcaption><p>{text(plane.why_not)}</p></figure>")
        else:
            parts.append(cloud(plane.name, plane.about, plane.points, groups, labels))
    return [*parts, "</div><p class=soft>Point at a mark to read its instruction.</p>"]


def _groups(rows: Sequence[Row]) -> tuple[list[str], str]:
    """(a group for each row, what it is): its category, or where none is known its marketplace."""
    if any(row.category != NO_CATEGORY for row in rows):
        return [row.category for row in rows], "category"
    return [row.tool_id.partition("/")[0] or "none" for row in rows], "marketplace (no categories are known)"


def _spread(name: str, rows: list[Row], sample: Sample | None) -> Spread:
    return Spread(
        name, rows, len(sample.rows) if sample else 0, mean_distance(sample.vectors) if sample is not None else None
    )


def _named(paths: Sequence[Path]) -> list[str]:
    """Files by name, with their folder's where two are called alike; never where they lie on a machine."""
    names = [path.name for path in paths]
    return [f"{p.resolve().parent.name}/{p.name}" if names.count(p.name) > 1 else p.name for p in paths]


def _server_of(tool_id: str) -> str:
    return tool_id.rpartition("/")[0] or tool_id
