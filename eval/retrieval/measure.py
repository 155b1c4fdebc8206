"""Measures the product's own search: files in, a throw-away index, every request asked once, one JSON object out.

docs/EVALUATION.md defines each number.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.errors import BadInput, StorageError, ToolscoutError
from toolscout.eval.metrics import Judged, auroc, mean_scores, ranking_scores, share, spread
from toolscout.eval.retrieval.lengths import Lengths, length_report
from toolscout.eval.retrieval.pieces import Answers, header_of
from toolscout.eval.retrieval.refusal import refusal_report
from toolscout.eval.rows import (
    Say,
    check_files,
    grouped,
    lang_of,
    missing_gold,
    read_calls,
    read_servers,
    read_tools,
    silent,
    split_of,
)
from toolscout.eval.tokens import TokenCounter, make_counter
from toolscout.eval.work_file import Work, work_file
from toolscout.index import fusion
from toolscout.records import Call, JsonObject, Server, ServerState
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.eval.peers import PeerPlan
    from toolscout.eval.retrieval.extras import Extras
    from toolscout.index.search import Answer, SearchIndex, ToolRequest

RANK_DEPTH = 50
"""Ranks looked at, the most that the search gives; MRR counts a tool beyond it as not found."""

OFFERED = 5
"""``limit`` of the timed question: what an agent asks by default."""


@dataclass
class Asked:
    """What one request came to. ``ranked`` is best first and at most `RANK_DEPTH` long."""

    row: Call
    ranked: list[str]
    probability: float
    no_match: bool
    ms: float
    answer_tokens: int
    given: list[str] = field(default_factory=list)
    """Tools of the answer of dynamic length, abstention aside; ``dynamic_tokens`` are its text's, ``fixed_tokens``
    those of an answer of five tools."""
    dynamic_tokens: int = 0
    fixed_tokens: int = 0

    def judged(self) -> Judged:
        """The ranking with what was wanted."""
        gold = frozenset(g.tool_id for g in self.row.gold)
        return Judged(self.ranked, gold, gold | frozenset(self.row.relevant or ()))


@dataclass
class RetrievalRun:
    """``result`` is the contract's object (DESIGN section 7); ``notes`` says how it was measured."""

    result: JsonObject
    asked: list[Asked]
    notes: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    details: JsonObject = field(default_factory=dict)
    """What every run knows beyond the contract: ``refusal`` and ``dynamic_k``, and ``by_language`` where it
    was guessed."""
    misses: str = ""
    """The page of missed rows, if it was asked for."""


@dataclass(frozen=True)
class Question:
    """What the search is asked for a row: the user's words, structured requests, or both."""

    query: str | None
    requests: tuple[ToolRequest, ...] = ()


@dataclass(frozen=True)
class RetrievalFiles:
    """The files of one measurement, each ``.jsonl`` or ``.jsonl.gz`` in the data contract."""

    tools: Sequence[Path]
    calls: Sequence[Path]
    servers: Sequence[Path] = ()


def measure_retrieval(
    files: RetrievalFiles,
    *,
    settings: Settings | None = None,
    limit: int | None = None,
    seed: int = 0,
    cache: Path | None = None,
    tokenizer: Path | None = None,
    peers: PeerPlan | None = None,
    extras: Extras | None = None,
    work: Path | None = None,
    say: Say = silent,
) -> RetrievalRun:
    """Build an index from the files in a temporary home, ask every row, and score the answers.

    Nothing of ``calls`` enters the index. ``settings`` (default: from the environment) decides encoder and the rest;
    its home is left alone. ``cache`` is a folder that keeps embeddings for later runs. ``work`` gets every answer and
    every finished part at once, and a later run goes on from it. Raises NotFound for a missing file, BadInput for files
    that do not fit together, or a ``work`` file of another run.
    """
    from toolscout.eval.peers import check_peers, measure_peers
    from toolscout.eval.retrieval.extras import Extras, measure_extras, prepare

    if peers is not None:
        check_peers(peers)
    settings = settings or Settings()
    check_files(files.tools, files.servers)
    calls, warnings = askable_rows(read_calls(files.calls, limit, seed))
    extras = extras or Extras()
    prepared = prepare(extras, calls, files.tools)
    calls = prepared.calls
    warnings += prepared.warnings
    counter = make_counter(tokenizer)
    header = header_of(files.tools, files.servers, settings, tokenizer) if work is not None else {}
    with work_file(work, header) as done, tempfile.TemporaryDirectory(prefix="toolscout-eval-") as home:
        mine = settings.model_copy(update={"home": Path(home), "database": "", "starter": False})
        say(f"building the index of {_names(files.tools)}")
        seconds = _build_apart(mine, files, cache)
        if "index" not in done:
            done.add("index", {"seconds": seconds, "cached": cache is not None})
        from toolscout.index.search import SearchIndex

        index = SearchIndex.open(mine.index_dir, settings=mine)
        try:
            warnings += check_gold(calls, lambda tool_id: index.get_tool(tool_id) is not None)
            for warning in warnings:
                say(warning)
            say(f"asking {len(calls)} requests over {len(index)} tools")
            answers = Answers(done)
            before = sum(answers.key(row, Question(row.query)) in done for row in calls)
            if before:
                say(f"{before} of {len(calls)} requests were answered before")
            asked = ask_all(index, calls, counter, say, answers=answers)
            if before < len(calls) or "memory" not in done:
                done.add("memory", {"mb": resident_mb()})
            result = score(
                asked,
                pool=len(index),
                threshold=round(fusion.threshold_for(len(index), index.params), 4),
                index_seconds=done["index"]["seconds"],
            )
            result["rss_mb"] = done["memory"]["mb"]
            details = more_numbers(asked, fusion.threshold_for(len(index), index.params))
            notes = {"tokenizer": counter.name, "encoder": settings.encoder, "rank depth": str(RANK_DEPTH)}
            if done["index"]["cached"]:
                notes["index_seconds"] = "with cached embeddings"
            if prepared.read_tools:
                notes["rss_mb"] = "with the tools' files, which --copies and --misses read"
            if before:
                notes["latency_ms"] = f"{before} of {len(calls)} requests were answered in an earlier run"
            more = measure_extras(index, asked, prepared, extras, counter, done=done, seed=seed, say=say)
            result |= more.result
            details |= more.details
            if peers:
                tools, servers = read_tools(files.tools), read_servers(files.servers)
                forms = {i: [(r.server, r.tool) for r in row.requests] for i, row in prepared.structured.items()}
                plan = replace(peers, structured=forms)
                result["peers"] = measure_peers(
                    plan, tools, servers, calls, counter, settings=settings, cache=cache, done=done, say=say
                )
        finally:
            index.close()
        if extras.ablation and extras.exemplars:
            add_exemplars(mine, extras, calls, cache, result, say)
    return RetrievalRun(result, asked, notes, warnings + more.warnings, details, more.misses)


def add_exemplars(
    settings: Settings, extras: Extras, calls: Sequence[Call], cache: Path | None, result: JsonObject, say: Say
) -> None:
    """Put the exemplars into the index and add their variants to ``result["ablation"]``."""
    from toolscout.eval.retrieval.ablation import measure_exemplars
    from toolscout.index.search import SearchIndex

    say(f"building the index again with the exemplars of {_names(extras.exemplars)}")
    _build_apart(settings, RetrievalFiles((), (), ()), cache, extras.exemplars)
    index = SearchIndex.open(settings.index_dir, settings=settings)
    try:
        result["ablation"]["exemplars"] = index.meta.exemplars
        result["ablation"]["variants"] += measure_exemplars(index, calls, say)
    finally:
        index.close()


def ask_all(
    index: SearchIndex,
    calls: Sequence[Call],
    counter: TokenCounter,
    say: Say = silent,
    questions: Mapping[str, Question] | None = None,
    answers: Answers | None = None,
) -> list[Asked]:
    """Ask every row as an agent does (timed), and again, abstention aside, for the whole ranking and for five tools.

    ``questions`` by row id are asked instead of the rows' own words. A request that the search refuses (no words in it)
    finds nothing. What ``answers`` has is not asked again.
    """
    answers = answers or Answers(Work({}, None))
    asking = [(row, questions[row.id] if questions else Question(row.query)) for row in calls]
    left = [(row, question) for row, question in asking if answers.key(row, question) not in answers.done]
    for _, question in left[:3]:  # the first questions load the encoder and map the files
        _find(index, question)
    for number, (row, question) in enumerate(left, start=1):
        answers.add(answers.key(row, question), _ask(index, row, question, counter))
        if number % 200 == 0:
            say(f"asked {number} of {len(left)}")
    return [answers.get(answers.key(row, question), row) for row, question in asking]


def _ask(index: SearchIndex, row: Call, question: Question, counter: TokenCounter) -> Asked:
    start = time.perf_counter()
    answer = _find(index, question)
    ms = (time.perf_counter() - start) * 1000
    whole = _find(index, question, limit=RANK_DEPTH, dynamic=False, abstain=False)
    ranked = list(dict.fromkeys(hit.tool_id for hit in whole.hits))
    given = _find(index, question, abstain=False) if answer.no_match else answer
    five = _find(index, question, dynamic=False, abstain=False)
    tokens, given_tokens, five_tokens = (counter(compact_text(one)) for one in (answer, given, five))
    offered = [hit.tool_id for hit in given.hits]
    return Asked(row, ranked, answer.probability, answer.no_match, ms, tokens, offered, given_tokens, five_tokens)


def _find(
    index: SearchIndex, question: Question, *, limit: int = OFFERED, dynamic: bool = True, abstain: bool = True
) -> Answer:
    try:
        return index.find(question.query, requests=question.requests, limit=limit, dynamic=dynamic, abstain=abstain)
    except BadInput:
        from toolscout.index.search import Answer

        return Answer([], True, 0.0, [], 0.0)


def compact_text(answer: Answer) -> str:
    """The text block that ``find_tools`` sends for this answer."""
    from toolscout.server.find import compact_answer
    from toolscout.server.wire import json_result

    text: str = json_result(compact_answer(answer, state_of=_state_of))["content"][0]["text"]
    return text


def _state_of(server: Server | None, _: str) -> ServerState:
    return ServerState.NEEDS_INSTALL if server is None else server.state


def score(asked: Sequence[Asked], *, pool: int, threshold: float | None, index_seconds: float) -> JsonObject:
    """The contract's object. ``n`` and the splits count the rows with gold; those without serve abstention alone."""
    answerable = [a for a in asked if a.row.gold]
    unanswerable = [a for a in asked if not a.row.gold]
    return {
        "n": len(answerable),
        "pool": pool,
        **_both_readings(answerable),
        "by_split": _groups(answerable, lambda a: split_of(a.row)),
        "by_lang": _groups(answerable, lambda a: lang_of(a.row)),
        "abstention": {
            "auroc": _rounded(auroc([a.probability for a in answerable], [a.probability for a in unanswerable])),
            "false_offer_rate": _rounded(share(not a.no_match for a in unanswerable)),
            "false_refusal_rate": _rounded(share(a.no_match for a in answerable)),
            "threshold": threshold,
        },
        "latency_ms": spread([a.ms for a in asked]),
        "answer_tokens": spread([float(a.answer_tokens) for a in asked], 1),
        "index_seconds": round(index_seconds, 2),
        "rss_mb": None,
    }


def more_numbers(asked: Sequence[Asked], threshold: float | None) -> JsonObject:
    """``refusal`` (`refusal.refusal_report`, and the share refused of each split, with gold or without) and
    ``dynamic_k`` (`lengths.length_report`)."""
    answerable = [a for a in asked if a.row.gold]
    served = [not a.row.relevant_ids().isdisjoint(a.given) for a in answerable]
    refusal = refusal_report(
        [a.probability for a in answerable],
        [a.probability for a in asked if not a.row.gold],
        threshold,
        served,
    )
    if refusal is not None:
        refusal["by_split"] = {
            name: {"n": len(rows), "refused": _rounded(share(a.no_match for a in rows))}
            for name, rows in grouped(asked, lambda a: split_of(a.row)).items()
        }
    return {
        "refusal": refusal,
        "dynamic_k": length_report(
            [Lengths(a.judged(), len(a.given), a.dynamic_tokens, a.fixed_tokens, a.no_match) for a in answerable]
        ),
    }


def _groups(asked: Sequence[Asked], key: Callable[[Asked], str]) -> JsonObject:
    return {name: {"n": len(rows), **_both_readings(rows)} for name, rows in grouped(asked, key).items()}


def _both_readings(asked: Sequence[Asked]) -> JsonObject:
    return readings([a.judged() for a in asked])


def readings(judged: Sequence[Judged]) -> JsonObject:
    """Mean ranking scores, strict and equivalent."""
    strict = [ranking_scores(j.strict_gains(), len(j.gold)) for j in judged]
    equivalent = [ranking_scores(j.equivalent_gains(), len(j.gold)) for j in judged]
    return {
        "strict": {key: _rounded(value) for key, value in mean_scores(strict).items()},
        "equivalent": {key: _rounded(value) for key, value in mean_scores(equivalent).items()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def askable_rows(calls: Sequence[Call]) -> tuple[list[Call], list[str]]:
    """Rows that a search over the whole pool can be asked, and what to say about the others.

    A row without gold that brings its own candidates says that none of those fits; in the pool something may.
    """
    kept = [row for row in calls if row.gold or not row.candidates]
    left = len(calls) - len(kept)
    if not left:
        return kept, []
    return kept, [f"{left} rows without gold left out: nothing among their own candidates fits, in the pool it may."]


def check_gold(calls: Sequence[Call], known: Callable[[str], bool]) -> list[str]:
    """What to say about gold tools that the pool lacks: such rows stay in and count as not found.

    Raises BadInput when the pool holds no gold tool at all: the files do not belong together.
    """
    wanted = {g.tool_id for row in calls for g in row.gold}
    missing = missing_gold(calls, known)
    if not missing:
        return []
    if len(missing) == len(wanted):
        raise BadInput(
            f"None of the {len(wanted)} gold tools is in the tools files; the first is {missing[0]!r}.",
            "Check that --tools and --calls belong together.",
        )
    return [
        f"{len(missing)} of {len(wanted)} gold tools are not in the pool and count as not found, e.g. {missing[0]!r}."
    ]


def resident_mb() -> float | None:
    """This process's resident memory in MiB; where the system does not tell, its largest so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def _build_apart(
    settings: Settings, files: RetrievalFiles, cache: Path | None, exemplars: Sequence[Path] = ()
) -> float:
    """Build in a process of its own, so that ``rss_mb`` is what answering takes, not what building took."""
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as worker:
            seconds, error = worker.submit(_build, settings, files, cache, exemplars).result()
    except BrokenProcessPool:
        raise StorageError(
            "The process that built the index was killed.", "It may have run out of memory: give fewer tools at once."
        ) from None
    if error is not None:
        kind, message, hint = error
        raise kind(message, hint)
    return seconds


def _build(
    settings: Settings, files: RetrievalFiles, cache: Path | None, exemplars: Sequence[Path]
) -> tuple[float, tuple[type[ToolscoutError], str, str] | None]:
    """Import and index; seconds from the open catalogue to the finished index. An expected failure is returned."""
    from toolscout.eval.vector_cache import CachingEncoder
    from toolscout.index.build import build_index
    from toolscout.index.catalogue import Catalogue
    from toolscout.index.encoder import make_encoder
    from toolscout.index.transfer import import_files

    try:
        encoder = make_encoder(settings, threads=os.cpu_count())
        if cache is not None:
            encoder = CachingEncoder(encoder, cache)
        start = time.perf_counter()
        with Catalogue(settings.database_url, guard=False) as catalogue:
            import_files(catalogue, servers=files.servers, tools=files.tools, calls=exemplars)
            build_index(catalogue, settings, encoder=encoder)
        return time.perf_counter() - start, None
    except ToolscoutError as error:
        return 0.0, (type(error), str(error), error.hint)


def _names(paths: Sequence[Path]) -> str:
    return ", ".join("/".join(path.parts[-2:]) for path in paths)
