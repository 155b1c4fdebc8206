"""What ``eval retrieval`` measures on request, beside the contract's numbers, over the index that it has open."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.errors import BadInput
from toolscout.eval.metrics import recall_at
from toolscout.eval.retrieval.pieces import Answers, part_key
from toolscout.eval.rows import Say, read_tools, silent
from toolscout.eval.work_file import Work
from toolscout.index import fusion
from toolscout.records import Call, JsonObject, Tool

if TYPE_CHECKING:
    from toolscout.eval.retrieval.measure import Asked, Question
    from toolscout.eval.retrieval.structured import StructuredRow
    from toolscout.eval.tokens import TokenCounter
    from toolscout.index.search import SearchIndex, ToolRequest


@dataclass(frozen=True)
class Extras:
    """What to measure.

    ``copies``: a copy of a relevant tool is relevant (`copies.with_copies`). ``requests``: a file of structured
    requests (`structured`). ``ablation``, with ``refit`` and the views of ``exemplars``: see `ablation`. ``misses``:
    write the page of missed rows. ``languages``: guess the language of rows in Latin script.
    """

    copies: bool = False
    requests: Path | None = None
    ablation: bool = False
    refit: bool = False
    exemplars: Sequence[Path] = ()
    misses: bool = False
    languages: bool = False


@dataclass
class Prepared:
    """The rows to measure and what was read for them, checked before anything is built."""

    calls: list[Call]
    structured: Mapping[str, StructuredRow] = field(default_factory=dict)
    pool_of: Mapping[str, str] = field(default_factory=dict)
    """Short name of the file that each tool came from, where there are several."""
    warnings: list[str] = field(default_factory=list)
    read_tools: bool = False
    """Whether the tools' files were read in this process, which then is larger than one that only answers."""


@dataclass
class More:
    """``result`` goes into the result as it is, ``details`` beside it."""

    result: JsonObject = field(default_factory=dict)
    details: JsonObject = field(default_factory=dict)
    misses: str = ""
    warnings: list[str] = field(default_factory=list)


def prepare(extras: Extras, calls: Sequence[Call], tools: Sequence[Path]) -> Prepared:
    """Read and check the files that the extras need. Raises BadInput for options that need another, and bad files."""
    if (extras.refit or extras.exemplars) and not extras.ablation:
        raise BadInput("--refit and --exemplars say what --ablation does.", "Give --ablation as well.")
    prepared = Prepared(list(calls))
    if extras.languages:
        from toolscout.eval.language import check_language

        check_language()
    if extras.requests is not None:
        from toolscout.eval.retrieval.structured import read_structured

        prepared.structured = read_structured(extras.requests, calls)
    if extras.exemplars:
        from toolscout.eval.retrieval.ablation import check_exemplars
        from toolscout.jsonl import read_records

        check_exemplars([row for path in extras.exemplars for row in read_records(path, Call)], calls)
    several = extras.misses and len(tools) > 1
    if extras.copies or several:
        prepared.read_tools = True
        pool: dict[str, Tool] = {}
        origin: dict[str, str] = {}
        for path in tools:
            for tool_id, tool in read_tools([path]).items():
                if pool.setdefault(tool_id, tool) is tool:
                    origin[tool_id] = path.parent.name or path.stem
        prepared.pool_of = origin if several else {}
        if extras.copies:
            from toolscout.eval.retrieval.copies import with_copies

            prepared.calls, changed = with_copies(calls, pool)
            prepared.warnings.append(f"{changed} rows count copies of their relevant tools as relevant, too.")
    return prepared


def measure_extras(
    index: SearchIndex,
    asked: Sequence[Asked],
    prepared: Prepared,
    extras: Extras,
    counter: TokenCounter,
    *,
    done: Work | None = None,
    seed: int = 0,
    say: Say = silent,
) -> More:
    """Measure what ``extras`` names, except exemplars, which need another index; not what ``done`` has."""
    more = More()
    done = done if done is not None else Work({}, None)
    unlike = sum(a.ranked[: len(a.given)] != a.given for a in asked)
    if unlike:
        more.warnings.append(f"{unlike} answers are in another order than the whole ranking, which recall is of.")
    if extras.languages:
        more.details["by_language"] = by_language(asked)
    if prepared.structured:
        more.result["structured"] = measure_structured(index, asked, prepared.structured, counter, say, done)
    if extras.ablation:
        from toolscout.eval.retrieval.ablation import measure_ablation

        key = part_key("ablation", prepared.calls, extras.refit, seed)
        if key not in done:
            found = measure_ablation(index, prepared.calls, refit=extras.refit, seed=seed, say=say)
            done.add(key, {"found": found})
        # exemplars add to it
        more.result["ablation"] = copy.deepcopy(done[key]["found"])
    if extras.misses:
        from toolscout.eval.retrieval.misses import misses_markdown

        title = f"Misses over {len(index):,} tools"
        more.misses, _ = misses_markdown(index, [(a.row, a.ranked) for a in asked], title, prepared.pool_of)
    return more


def measure_structured(
    index: SearchIndex,
    plain: Sequence[Asked],
    structured: Mapping[str, StructuredRow],
    counter: TokenCounter,
    say: Say = silent,
    done: Work | None = None,
) -> JsonObject:
    """The rows asked again in structured form, with both forms at once, and with the structured form's words as a plain
    query: ``{by, forms: {FORM: {...}}}``.

    Each form has the contract's numbers, and ``won`` and ``lost``: answerable rows that find an equivalent tool among
    the first five where the plain query does not, and the other way round.
    """
    from toolscout.eval.retrieval.measure import Question, ask_all
    from toolscout.index.search import ToolRequest

    calls = [a.row for a in plain]
    requests = {i: tuple(ToolRequest(r.server, r.tool) for r in row.requests) for i, row in structured.items()}
    forms: dict[str, dict[str, Question]] = {
        "structured": {row.id: Question(None, requests[row.id]) for row in calls},
        "both": {row.id: Question(row.query, requests[row.id]) for row in calls},
        "rewritten": {row.id: Question(_as_query(requests[row.id])) for row in calls},
    }
    found: JsonObject = {"plain": _form(plain, [], fusion.threshold_for(len(index), index.params))}
    for name, questions in forms.items():
        say(f"asking in structured form: {name}")
        asked = ask_all(index, calls, counter, say, questions, Answers(done, name) if done is not None else None)
        found[name] = _form(asked, plain, fusion.threshold_for(len(index), index.params))
    writers = sorted({row.by for row in structured.values()} - {""})
    return {"by": writers, "forms": found}


def _as_query(requests: Sequence[ToolRequest]) -> str:
    return ". ".join(f"{r.server}: {r.tool}" if r.server else r.tool for r in requests)


_KEPT = ("n", "strict", "equivalent", "by_split", "by_lang", "abstention", "latency_ms", "answer_tokens")


def _form(asked: Sequence[Asked], plain: Sequence[Asked], threshold: float) -> JsonObject:
    from toolscout.eval.retrieval.measure import score

    whole = score(asked, pool=0, threshold=round(threshold, 4), index_seconds=0.0)
    now, then = _found(asked), _found(plain)
    changes = {
        "won": sum(a > b for a, b in zip(now, then, strict=False)),
        "lost": sum(a < b for a, b in zip(now, then, strict=False)),
    }
    return {**{key: whole[key] for key in _KEPT}, **(changes if plain else {})}


def _found(asked: Sequence[Asked]) -> list[float]:
    judged = [a.judged() for a in asked if a.row.gold]
    return [recall_at(j.equivalent_gains(), len(j.gold), 5) for j in judged]


def by_language(asked: Sequence[Asked]) -> JsonObject:
    """The contract's groups by guessed language instead of script, with the rates of refusal."""
    from toolscout.eval.language import guess_language
    from toolscout.eval.metrics import share
    from toolscout.eval.retrieval.measure import readings
    from toolscout.eval.rows import grouped

    groups: JsonObject = {}
    for name, rows in grouped(asked, lambda a: guess_language(a.row.query, a.row.lang)).items():
        answerable = [a for a in rows if a.row.gold]
        refused = share(a.no_match for a in answerable)
        groups[name] = {
            "n": len(answerable),
            **readings([a.judged() for a in answerable]),
            "false_refusal_rate": None if refused is None else round(refused, 4),
        }
    return groups
