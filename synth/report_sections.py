"""Sections of the report's page: steps, drops, price, what the rows are like, samples to read, settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from toolscout.synth.drafts import draw
from toolscout.synth.report_charts import bar, counts, foreign, histogram, number, ordered, table, text
from toolscout.synth.report_facts import bins, drawn
from toolscout.synth.report_folder import RunSeen, StepSeen
from toolscout.synth.report_rows import Row

_SAMPLES = 50
_LONGEST = 1500

_RULES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "generate": ("longest_instruction", lambda v: f"more than {v:,} characters, among others"),
    "fill": ("fill_shared_from", lambda v: f"less than {v:g} of the instruction's 5-grams, among others"),
    "evolve": ("growth_words", lambda v: f"more than {v} words added, among others"),
    "resembles": ("resembles_above", lambda v: f"cosine with the tool's description above {v:g}"),
    "grounded": ("ungrounded_above", lambda v: f"more than {v} values that the instruction does not give"),
    "duplicates": ("duplicate_from", lambda v: f"similarity from {v:g} on with one kept before"),
    "invocation": ("distractors", lambda v: f"no model finds the gold among it and {v} others"),
    "judge": ("judge_below", lambda v: f"a score below {v:g} of 10"),
    "response": ("response_below", lambda v: f"a score below {v:g} of 10"),
    "faithful": ("answer_below", lambda v: f"a score below {v:g} of 10"),
    "reasonable": ("plan_reasonable_below", lambda v: f"a score below {v:g} of 10"),
    "semantic": ("plan_matches_below", lambda v: f"a score below {v:g} of 10"),
    "rules": ("ungrounded_above", lambda v: f"more than {v} values that the request does not give, among others"),
}
"""A step's threshold, and what it drops in words."""

_SHOWN_ELSEWHERE = {
    "finished",
    "remarks",
    "planned",
    "inputs",
    "steps",
    "thresholds",
    "settings",
    "models",
    "spent",
    "answers_of_this_run",
}


def funnel(run: RunSeen) -> Iterator[str]:
    """Counts of the steps, one below the other, with what they dropped and at which threshold."""
    most = max((s.made + sum(s.dropped.values()) + (s.waiting or 0) for s in run.steps), default=1)
    rows = [
        [text(s.step), _stack(s, most), number(s.inputs), number(s.made), number(sum(s.dropped.values())), _why(s, run)]
        for s in run.steps
    ]
    head = ["step", "", "inputs", "goes on", "dropped", "why, and the threshold"]
    yield table("What each step made of its inputs, over the whole folder", head, rows, kind="funnel")
    key = [
        ("good", "goes on"),
        ("bad", "dropped"),
        *([("wait", "waiting")] if any(s.waiting for s in run.steps) else []),
    ]
    marks = "".join(f"<i class='bar {kind}'></i>{name}" for kind, name in key)
    yield f"<p class='soft key'>{marks}</p>"
    if left := {why: n for why, n in (run.report.get("left_out") or {}).items() if n}:
        said = ", ".join(f"{text(why)} {number(n)}" for why, n in left.items())
        yield f"<p>Left out before the first step: {said}.</p>"
    yield from (f"<p>{text(remark)}</p>" for remark in run.report.get("remarks") or ())


def _stack(step: StepSeen, most: int) -> str:
    dropped = sum(step.dropped.values())
    parts = [bar(step.made, most), bar(dropped, most, "bad") if dropped else ""]
    return f"<span class=stack>{''.join(parts)}{bar(step.waiting, most, 'wait') if step.waiting else ''}</span>"


def _why(step: StepSeen, run: RunSeen) -> str:
    named, said = _RULES.get(step.step, ("", str))
    value = (run.report.get("thresholds") or {}).get(named)
    rule = f"<span class=soft>drops {text(said(value))}</span>" if value is not None else ""
    reasons = "".join(f"<li>{text(why)}: {number(n)}</li>" for why, n in step.dropped.most_common(12))
    waiting = f"<p class=soft>{number(step.waiting)} inputs wait</p>" if step.waiting else ""
    return rule + (f"<ul>{reasons}</ul>" if reasons else "") + waiting


def drops(run: RunSeen) -> Iterator[str]:
    """All reasons together."""
    if run.losses:
        found = Counter(f"{loss.step}: {loss.reason}" for loss in run.losses)
        yield counts("All that was dropped, by reason", ordered(found), "step: reason", "bad")


def costs(run: RunSeen) -> Iterator[str]:
    """Requests, tokens and price by model."""
    if not run.spent:
        yield "<p>No model was asked.</p>"
        return
    names = ("requests", "retries", "prompt_tokens", "completion_tokens", "price")
    rows = [[text(model), *(number(_plain(spent.get(name))) for name in names)] for model, spent in run.spent.items()]
    if len(rows) > 1:
        totals = [sum(float(s.get(name) or 0) for s in run.spent.values()) for name in names]
        rows.append(["all", *(number(_plain(t)) for t in totals)])
    head = ["model", "requests", "retries", "prompt tokens", "answer tokens", "price"]
    yield table("By model, over all runs in the folder", head, rows)
    price = sum(float(s.get("price") or 0) for s in run.spent.values())
    if run.rows and price:
        yield f"<p>{number(price / len(run.rows))} a row.</p>"
    if answers := run.report.get("answers_of_this_run"):
        said = ", ".join(f"{text(k)} {number(v)}" for k, v in answers.items())
        yield f"<p class=soft>Answers of the last run: {said}.</p>"


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def shapes(rows: Sequence[Row]) -> Iterator[str]:
    """Lengths, numbers of arguments, categories, languages, levels and directions of evolution, scores."""
    if not rows:
        yield "<p>There are none yet.</p>"
        return
    yield "<div class=grid2>"
    yield histogram("Length", "words of the instruction (by spaces)", _cut([len(r.text.split()) for r in rows]))
    yield histogram("Length in characters", "characters of the instruction", _cut([len(r.text) for r in rows]))
    if any(given is not None for r in rows for _, given in r.calls):
        yield histogram("Arguments", "arguments of the row's calls", _cut([r.arguments for r in rows]))
    if any(len(r.calls) > 1 for r in rows):
        yield histogram("Calls", "calls of a row", _cut([len(r.calls) for r in rows]))
    for name in sorted({name for r in rows for name in r.scores}):
        yield histogram(
            f"Score: {name.replace('_', ' ')}", "score", bins([r.scores[name] for r in rows if name in r.scores])
        )
    yield "</div><div class=grid2>"
    for caption, head, values in (
        ("Categories of the servers", "category", [r.category for r in rows]),
        ("Languages", "language", [r.lang or "not stated" for r in rows]),
        ("Levels of evolution", "level", [r.level for r in rows]),
        (
            "Directions of evolution, the last one of a row",
            "direction",
            [r.directions[-1] for r in rows if r.directions],
        ),
        ("Marketplaces", "marketplace", [r.tool_id.partition("/")[0] or "none" for r in rows]),
    ):
        yield f"<div>{counts(caption, ordered(Counter(values)), head)}</div>" if values else ""
    yield "</div>"


def _cut(values: list[int]) -> list[tuple[str, int]]:
    """Ranges up to what 99 of 100 have; the few beyond would press all others into one bar."""
    high = sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
    within, beyond = [float(v) for v in values if v <= high], sum(v > high for v in values)
    return [*bins(within), *([(f"over {high:g}", beyond)] if beyond else [])]


def to_read(run: RunSeen) -> Iterator[str]:
    """Fifty kept rows and fifty dropped things, drawn without regard to what they are."""
    kept = drawn(run.rows, _SAMPLES, "read")
    rows = [[foreign(r.text, _LONGEST), _called(r), _traits(r)] for r in kept]
    which = "kept rows" if run.finished else "rows so far"
    yield f"<h3>{len(kept)} {which}</h3>"
    yield table(f"Drawn from {len(run.rows):,}", ["instruction", "call", "how it came about"], rows, kind="read kept")
    lost = sorted(enumerate(run.losses), key=lambda p: draw("read", p[1].step, p[1].id, p[0]))[:_SAMPLES]
    lines = [
        [f"{text(x.step)}: {text(x.reason)}", foreign(x.detail, _LONGEST), foreign(x.text, _LONGEST)] for _, x in lost
    ]
    yield f"<h3>{len(lost)} dropped</h3>"
    caption = f"Drawn from {len(run.losses):,}"
    yield table(caption, ["step: reason", "detail", "what was dropped"], lines, kind="read lost")


def _called(row: Row) -> str:
    parts = []
    for tool, given in row.calls:
        said = "" if given is None else json.dumps(given, ensure_ascii=False, indent=1)[:_LONGEST]
        parts.append(f"{foreign(tool)}<code>{text(said)}</code>")
    return "".join(parts)


def _traits(row: Row) -> str:
    facts = [row.category, f"level {row.level}", *([" → ".join(row.directions)] if row.directions else [])]
    facts += [row.lang] if row.lang else []
    facts += [f"{name.replace('_', ' ')} {number(float(value))}" for name, value in row.scores.items()]
    return "<br>".join(text(f) for f in facts)


def made_with(run: RunSeen) -> Iterator[str]:
    """Models, thresholds and settings of the last run."""
    for caption, key in (("Models", "models"), ("Thresholds", "thresholds"), ("Settings", "settings")):
        found = run.report.get(key) or {}
        rows = [[text(name), text(value if value is not None else "–")] for name, value in found.items()]
        if any(value is not None for value in found.values()):
            yield table(caption, ["", ""], rows)


def others(run: RunSeen) -> Iterator[str]:
    """What the report says beside this, as it stands there."""
    rest = {k: v for k, v in run.report.items() if k not in _SHOWN_ELSEWHERE and v is not None}
    if rest:
        said = json.dumps(rest, ensure_ascii=False, indent=2)
        yield f"<details><summary>More of report.json</summary><pre>{text(said)}</pre></details>"
