"""Tables of what ``eval retrieval`` measures on request: title, head and rows of texts each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolscout.records import JsonObject

Parts = tuple[str, list[str], list[list[str]]]
RECALLS = ("recall@1", "recall@5", "recall@10")


def refusal_tables(report: JsonObject) -> list[Parts]:
    """Points of the refusal curve, and calibration."""
    default = report["default"]
    points = [("default threshold", default)] if default else []
    points += [(f"{float(budget):.0%} wrong refusals", point) for budget, point in report["at_wrong_refusals"].items()]
    shown: Parts = (
        f"Refusal: {report['answerable']} answerable and {report['unanswerable']} unanswerable requests",
        ["", "threshold", "wrong refusals", "false offers"],
        [
            [name, f"{point['threshold']:.3f}", _interval(point, "wrong_refusals"), _interval(point, "false_offers")]
            for name, point in points
        ],
    )
    calibration: Parts = (
        "Calibration of probability",
        ["", "expected error", "Brier", "base rate"],
        [
            [_OUTCOMES[key], _share(part["ece"]), _share(part["brier"]), _share(part["base_rate"])]
            for key, part in report["calibration"].items()
        ],
    )
    splits = report["by_split"]
    by_split: Parts = (
        "Refused, right or wrong, by split",
        ["", "n", "refused"],
        [[name, str(part["n"]), _share(part["refused"])] for name, part in splits.items()],
    )
    return [shown, calibration, *([by_split] if len(splits) > 1 else [])]


_OUTCOMES = {"answerable": "some tool of the pool serves it", "served": "an offered tool serves it"}


def _interval(point: Mapping[str, Any], key: str) -> str:
    text = f"{point[key]:.3f}"
    if f"{key}_95" in point:
        low, high = point[f"{key}_95"]
        text += f" ({low:.3f} to {high:.3f})"
    return text


def length_tables(report: JsonObject) -> list[Parts]:
    """Fixed against dynamic length."""
    fixed, dynamic, same, given = (report[key] for key in ("fixed", "dynamic", "same_length", "as_given"))
    lengths = ", ".join(f"{length}: {count}" for length, count in report["lengths"].items())
    rows = [
        [f"fixed, {fixed['k']}", *_costs(fixed)],
        ["dynamic", *_costs(dynamic)],
        [f"fixed, {same['k']:.2f} (in proportion)", _share(same["equivalent"]), "-", f"{same['k']:.2f}", "-"],
        [f"dynamic, {given['refused']} refused", _share(given["equivalent"]), "-", "-", "-"],
    ]
    title = f"Length of answers ({lengths}); {report['gained']} rows gain, {report['lost']} lose"
    return [(title, ["", "equivalent recall", "strict recall", "tools", "tokens"], rows)]


def _costs(part: Mapping[str, Any]) -> list[str]:
    return [_share(part["equivalent"]), _share(part["strict"]), f"{part['tools']:.2f}", f"{part['tokens']:.0f}"]


def language_tables(groups: JsonObject) -> list[Parts]:
    """By guessed language."""
    head = ["", "n", *(f"equiv. @{key[7:]}" for key in RECALLS), "wrong refusals"]
    rows = [
        [name, str(part["n"]), *_recalls(part["equivalent"]), _share(part["false_refusal_rate"])]
        for name, part in groups.items()
        if part["n"]
    ]
    return [("By language, guessed where a row tells only the script", head, rows)]


def structured_tables(structured: JsonObject) -> list[Parts]:
    """Plain queries against structured requests."""
    head = [
        "", *(f"strict @{k[7:]}" for k in RECALLS), *(f"equiv. @{k[7:]}" for k in RECALLS),
        "won / lost @5", "AUROC", "ms p50", "tokens p50",
    ]  # fmt: skip
    rows = [
        [
            name, *_recalls(form["strict"]), *_recalls(form["equivalent"]), _changes(form),
            _share(form["abstention"]["auroc"]), _number(form["latency_ms"]["p50"]),
            _number(form["answer_tokens"]["p50"]),
        ]
        for name, form in structured["forms"].items()
    ]  # fmt: skip
    by = ", ".join(structured["by"]) or "unknown"
    return [(f"Structured requests, written by {by}", head, rows)]


def ablation_tables(ablation: JsonObject) -> list[Parts]:
    """Every variant, and the two probes."""
    splits = sorted({split for variant in ablation["variants"] for split in variant["by_split"]})
    splits = splits if len(splits) > 1 else []
    head = ["", *(f"strict @{k[7:]}" for k in RECALLS), *(f"equiv. @{k[7:]}" for k in RECALLS), "won / lost @5"]
    head += [f"{split} @5" for split in splits]
    tables: list[Parts] = [
        (
            f"What each part is worth: {ablation['n']} requests; not in this index: "
            + (", ".join(ablation["absent"]) or "nothing"),
            head,
            [_variant(variant, splits) for variant in ablation["variants"]],
        )
    ]
    ready, names = ablation["ready"], ablation["names"]
    columns = ["", "any @1", "any @5"]
    tables.append(
        (
            f"Servers that can be called at once: {ready['ready_servers']} drawn for each of {ready['n']} requests",
            columns,
            [
                ["none favoured", *_any(ready["plain"])],
                ["only unfitting servers favoured", *_any(ready["harm"])],
                ["and the fitting one", *_any(ready["help"])],
            ],
        )
    )
    if names:
        tables.append(
            (
                f"{names['n']} tools asked for by their bare name",
                columns,
                [["with exact-name hits", *_any(names["with"])], ["without", *_any(names["without"])]],
            )
        )
    return tables


def _variant(variant: Mapping[str, Any], splits: Sequence[str]) -> list[str]:
    return [
        f"{variant['group']} {variant['name']}".strip(),
        *_recalls(variant["strict"]),
        *_recalls(variant["equivalent"]),
        _changes(variant),
        *(_share(variant["by_split"].get(split, {}).get("equivalent recall@5")) for split in splits),
    ]


def _changes(part: Mapping[str, Any]) -> str:
    return "-" if part.get("won") is None else f"+{part['won']} / -{part['lost']}"


def _any(part: Mapping[str, Any]) -> list[str]:
    return [_share(part["any@1"]), _share(part["any@5"])]


def _recalls(part: Mapping[str, Any]) -> list[str]:
    return [_share(part[key]) for key in RECALLS]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
