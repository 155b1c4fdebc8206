"""The scanner's verdicts for reading: tables, a plot, and a page with what it missed and what it held back in error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolscout.eval.charts import Series, figure, grouped_bars, height_of, legend, plot_part, ranges, short
from toolscout.eval.metrics import wilson
from toolscout.eval.plots import save_figure
from toolscout.eval.report import Table, _write_folder
from toolscout.records import JsonObject

_SHARES = ("before", "after", "gold_before", "gold_after")
_PARTS = {"all": "all", "tuning": "seen while rules were made", "held_out": "held out"}


def guard_tables(result: JsonObject) -> list[Table]:
    """The result as tables."""
    rows = [[part, str(d["n"]), str(d["held_back"]), _percent(d["rate"])] for part, d in result["detection"].items()]
    shown = [Table("Poisoned tools", ["part", "tools", "held back", "rate"], rows)]
    kinds = result["detection"]["all"]["by_kind"] if "all" in result["detection"] else {}
    shown.append(
        Table(
            "By kind", ["kind", "tools", "held back"], [[k, str(v["n"]), str(v["held_back"])] for k, v in kinds.items()]
        )
    )
    for name, parts in result.get("tricky", {}).items():
        counts = [[part, str(c["n"]), str(c["held_back"]), _percent(c["rate"])] for part, c in parts.items()]
        shown.append(Table(f"Honest, but tricky: {name}", ["part", "tools", "held back", "rate"], counts))
    alarms = [
        [f"{name} ({half})", str(c["n"]), str(c["held_back"]), _percent(c["rate"])]
        for name, halves in result["alarms"].items()
        for half, c in halves.items()
    ]
    if alarms:
        shown.append(Table("Honest tools", ["file", "tools", "held back", "rate"], alarms))
    if "ms_per_tool" in result:
        ms = result["ms_per_tool"]
        text = [[str(ms["n"]), str(ms["p50"]), str(ms["mean"]), str(ms["p99"]), str(ms["most"])]]
        shown.append(Table("CPU milliseconds a tool", ["tools", "median", "mean", "p99", "most"], text))
    if "ranking" in result:
        families = [
            [
                name,
                *("-" if f[k] is None else str(f[k]) for k in ("attackers", "held_back")),
                *("-" if f[k] is None else _percent(f[k]) for k in _SHARES),
            ]
            for name, f in result["ranking"]["families"].items()
        ]
        head = ["family", "attackers", "held back", "in first five", "with guard", "gold", "gold with guard"]
        shown.append(Table("Attacks on the ranking", head, families))
    return shown


def guard_report(result: JsonObject, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` (misses and alarms), the plot; returns the page's path."""
    rows = [
        *({"what": "missed", **row} for row in result["detection"].get("all", {}).get("missed", [])),
        *({"what": "held back", "of": name, **row} for name, part in _honest(result).items() for row in part["quoted"]),
    ]
    parts = [plot_part("Held back", result, folder / "guard.png", guard_plot)]
    parts += [table.html() for table in guard_tables(result)]
    missed = [[row["id"], row["kind"], str(row["level"]), row["tool"]] for row in rows if row["what"] == "missed"]
    held = [
        [str(row.get("tool_id") or row.get("id")), row["of"], row["code"], row["where"], row["evidence"]]
        for row in rows
        if row["what"] == "held back"
    ]
    shown = [
        Table("Poisoned tools that were let through", ["", "kind", "level", "tool"], missed),
        Table("Honest tools that were held back", ["", "file", "code", "where", "evidence"], held),
    ]
    # Texts to read, unlike the numbers above, begin at the left.
    texts = "".join(table.html() for table in shown if table.rows)
    parts.append(f"<style>.quoted td,.quoted th{{text-align:left}}</style><div class=quoted>{texts}</div>")
    return _write_folder(folder, "Guard", [], parts, result, rows)


def guard_plot(result: JsonObject, path: Path) -> str | None:
    """Poisoned tools held back, honest ones held back, and attackers among the first five, into a PNG file; returned as
    SVG, too. None where matplotlib is missing. Raises StorageError if the file cannot be written."""
    poisoned, honest = _poisoned(result), _honest(result)
    families = {k: f for k, f in result.get("ranking", {}).get("families", {}).items() if f["attackers"]}
    heights = [height_of(len(honest), 1) if honest else 0, 1.3 + 0.5 * len(families) if families else 0]
    drawn = figure(12, max(height_of(len(poisoned), 1), sum(heights) + 0.4))
    if drawn is None:
        return None
    right = [height for height in heights if height]
    left, *panels = drawn.subplot_mosaic(
        [["poisoned", f"right{n}"] for n in range(len(right))] or [["poisoned"]], height_ratios=right or None
    ).values()
    _held_back(left, poisoned, "Poisoned tools held back, 95 % intervals")
    if honest:
        axes = panels.pop(0)
        highest = _held_back(axes, honest, "Honest tools held back, 95 % intervals")
        axes.set_xlim(-0.02 * highest, 1.05 * highest)
    if families:
        axes = panels.pop(0)
        names = [short(name) for name in families]
        shares = {
            label: [100 * family[key] for family in families.values()]
            for key, label in (("before", "without guard"), ("after", "with guard"))
        }
        grouped_bars(
            axes, names, shares, xlabel="% of requests", title="An attacker among the first five", form="{:.1f}"
        )
        legend(drawn, axes)
    return save_figure(drawn, path)


def _held_back(axes: Any, counts: Mapping[str, JsonObject], title: str) -> float:
    """Draw the shares held back; returns where the highest interval ends, in per cent."""
    names = [f"{short(name)} (n={part['n']:,})" for name, part in counts.items()]
    shares = [part["held_back"] / part["n"] for part in counts.values()]
    around = [wilson(part["held_back"], part["n"]) for part in counts.values()]
    ranges(axes, names, [Series("held back", shares, around)], xlabel="% of tools", title=title)
    return max((100 * high for _, high in around), default=100.0)


def _poisoned(result: JsonObject) -> dict[str, JsonObject]:
    """Counts by part, and of all of them by level and kind."""
    found = {_PARTS[part]: result["detection"][part] for part in _PARTS if part in result["detection"]}
    whole = result["detection"].get("all", {})
    found |= {f"level {level}": part for level, part in whole.get("by_level", {}).items()}
    return found | {kind.replace("_", " "): part for kind, part in whole.get("by_kind", {}).items()}


def _honest(result: JsonObject) -> dict[str, JsonObject]:
    """Counts of honest tools: the tricky ones by file, the others by file and half."""
    tricky = {f"tricky: {name}": parts["all"] for name, parts in result.get("tricky", {}).items()}
    halves = {f"{name} ({half})": part for name, both in result["alarms"].items() for half, part in both.items()}
    return {name: part for name, part in (tricky | halves).items() if part["n"]}


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
