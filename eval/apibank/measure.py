"""``toolscout eval apibank``: is the tool for each turn of a dialogue found?

MCP-Zero's experiment on API-Bank (arXiv 2506.01056): dialogues with one call (single turn) and with several (multi
turn), the tools retrieved from the domain of the request and from the full collection. There a model writes the
request; here the dialogue's own words are searched with, in three forms, and structured requests where a file has them.
docs/EVALUATION.md, API-Bank, defines each number.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.errors import BadInput
from toolscout.eval.apibank.dialogue import FORMS, asked, dialogues
from toolscout.eval.apibank.domains import domains
from toolscout.eval.metrics import Judged, mean_scores, ranking_scores, share, wilson
from toolscout.eval.needle.draw import Draws
from toolscout.eval.needle.pool import Haystack, Mask, open_haystack
from toolscout.eval.retrieval.measure import RetrievalFiles
from toolscout.eval.retrieval.structured import StructuredRow, read_structured
from toolscout.eval.rows import Say, draw, read_calls, read_tools, silent
from toolscout.eval.work_file import work_file
from toolscout.index.encoder import make_encoder
from toolscout.index.search import ToolRequest
from toolscout.records import Call, JsonObject, canonical_json, sha256_hex
from toolscout.settings import Settings

REQUESTED = "requested"
"""The form of structured requests."""


@dataclass(frozen=True)
class DialogueOptions:
    """What is measured. ``extra`` tools are put among those of the dialogues; ``given`` domains go before our own."""

    extra: Sequence[Path] = ()
    given: Mapping[str, object] | None = None
    requests: Path | None = None
    limit: int | None = None
    seed: int = 0


@dataclass
class ApiBankRun:
    """``result`` is the JSON object; ``pieces`` are the turns behind it."""

    result: JsonObject
    pieces: list[JsonObject]
    warnings: list[str] = field(default_factory=list)


def measure_apibank(
    files: RetrievalFiles,
    options: DialogueOptions,
    *,
    settings: Settings | None = None,
    cache: Path | None = None,
    work: Path | None = None,
    say: Say = silent,
) -> ApiBankRun:
    """Search for every turn's tool over its domain, the full collection and, with ``extra``, all tools.

    Raises BadInput for files that do not fit together or a ``work`` file of another run.
    """
    settings = settings or Settings()
    own = read_tools(files.tools)
    everything = {**(read_tools(options.extra) if options.extra else {}), **own}
    talks, warnings = _talks(read_calls(files.calls), set(own), options)
    rows = [row for talk in talks for row in talk]
    structured = read_structured(options.requests, rows) if options.requests is not None else {}
    for warning in warnings:
        say(warning)
    domain_of = domains(own, options.given)
    collections = ["domain", "full", *(["extended"] if options.extra else [])]
    forms = [*FORMS, *([REQUESTED] if structured else [])]
    draws = Draws(everything, options.seed)
    header: JsonObject = {
        "apibank": 1, "encoder": make_encoder(settings).fingerprint, "collections": collections, "forms": forms,
        "tools": draws.fingerprint, "domains": sha256_hex(canonical_json(domain_of)),
        "requests": sha256_hex("".join(structured[i].to_json() for i in sorted(structured))),
    }  # fmt: skip
    started = time.monotonic()
    with work_file(work, header) as done:
        todo = [row for row in rows if _key(row) not in done]
        if len(todo) < len(rows):
            say(f"{len(rows) - len(todo)} of {len(rows)} turns were done before")
        if todo:
            both = RetrievalFiles([*files.tools, *options.extra], [], files.servers)
            with open_haystack(both, draws.tool_ids, settings, cache, say) as haystack:
                search = _Search(haystack, list(own), domain_of, collections, forms, structured)
                for number, row in enumerate(todo, start=1):
                    done.add(_key(row), {"id": row.id, "ranked": search.ranked(row)})
                    if number % 50 == 0:
                        say(f"{number} of {len(todo)} turns")
        ranked = {row.id: done[_key(row)]["ranked"] for row in rows}
    pieces = [
        {
            "id": row.id,
            "turn": turn,
            "turns": len(talk),
            "gold": sorted(_gold(row)),
            "ranked": ranked[row.id],
        }
        for talk in talks
        for turn, row in enumerate(talk, start=1)
    ]
    result: JsonObject = {
        "experiment": "apibank", "n": len(rows), "dialogues": len(talks), "pool": len(own),
        "extended": len(everything) if options.extra else None, "domains": _sizes(domain_of),
        "encoder": settings.encoder,
        "settings": [
            {"turns": turns, "collection": collection, "form": form, **summary(some, ranked, f"{collection} {form}")}
            for turns, some in (("single", _with(talks, 1, 1)), ("multi", _with(talks, 2, None)))
            for collection in collections
            for form in forms
            if some
        ],
        "seconds": round(time.monotonic() - started, 1), "warnings": warnings,
    }  # fmt: skip
    return ApiBankRun(result, pieces, warnings)


class _Search:
    """One turn at a time, over every collection and in every form."""

    def __init__(
        self,
        haystack: Haystack,
        own: Sequence[str],
        domain_of: Mapping[str, str],
        collections: Sequence[str],
        forms: Sequence[str],
        structured: Mapping[str, StructuredRow],
    ) -> None:
        self.haystack, self.domain_of, self.collections, self.forms = haystack, domain_of, collections, forms
        self.structured = structured
        self.full = haystack.mask(own)
        self.extended = haystack.mask(list(haystack.row_of))
        self.domains = {
            name: haystack.mask([tool_id for tool_id in own if domain_of[tool_id] == name])
            for name in set(domain_of.values())
        }

    def ranked(self, row: Call) -> JsonObject:
        """Tool ids, best first, by collection and form (``full user``)."""
        found: JsonObject = {}
        for form in self.forms:
            requests = self.structured[row.id].requests if form == REQUESTED else ()
            words = None if form == REQUESTED else asked(row.query, form)
            asks = self.haystack.asks(words, [ToolRequest(r.server, r.tool) for r in requests])
            for collection in self.collections:
                rows = self.haystack.find(asks, self._pool(collection, row)).rows
                found[f"{collection} {form}"] = [self.haystack.id_of[place] for place in rows]
        return found

    def _pool(self, collection: str, row: Call) -> Mask:
        if collection == "domain":
            return self.domains[self.domain_of[row.gold[0].tool_id]]
        return self.full if collection == "full" else self.extended


def summary(talks: Sequence[Sequence[Call]], ranked: Mapping[str, Mapping[str, list[str]]], key: str) -> JsonObject:
    """One setting: ``recall@1`` and ``recall@5`` over turns, ``whole@1`` and ``whole@5`` over dialogues (every turn's
    tool found), ``by_turn`` (first call, second, ...). Strict: only the gold tool counts."""
    scores: list[list[dict[str, float]]] = []
    for talk in talks:
        line = []
        for row in talk:
            gold = _gold(row)
            line.append(ranking_scores(Judged(ranked[row.id][key], gold, gold).strict_gains(), len(gold)))
        scores.append(line)
    flat = [one for line in scores for one in line]
    longest = max(map(len, scores))
    found: JsonObject = {"dialogues": len(talks), "n": len(flat), **_recalls(flat)}
    for k in (1, 5):
        whole = [all(one[f"recall@{k}"] >= 1 for one in line) for line in scores]
        found[f"whole@{k}"] = round(share(whole) or 0.0, 4)
    found["by_turn"] = [
        {"turn": turn + 1, "n": len(some), **_recalls(some)}
        for turn in range(longest)
        if (some := [line[turn] for line in scores if len(line) > turn])
    ]
    return found


def _recalls(scores: Sequence[Mapping[str, float]]) -> JsonObject:
    means = mean_scores(scores, ("recall@1", "recall@5", "mrr"))
    found: JsonObject = {name: round(value or 0.0, 4) for name, value in means.items()}
    for k in (1, 5):
        found[f"recall@{k}_95"] = wilson(round((means[f"recall@{k}"] or 0.0) * len(scores)), len(scores))
    return found


def _talks(rows: Sequence[Call], known: set[str], options: DialogueOptions) -> tuple[list[list[Call]], list[str]]:
    """Dialogues whose turns can all be found; ``limit`` keeps that many. Raises BadInput if there are none."""
    answerable = [row for row in rows if row.gold]
    talks = dialogues(answerable)
    kept = [talk for talk in talks if all(g.tool_id in known for row in talk for g in row.gold)]
    if not kept:
        raise BadInput(
            "No dialogue has its gold tools in the tools files.", "Check that --tools and --calls belong together."
        )
    said = []
    if len(kept) < len(talks):
        said.append(f"{len(talks) - len(kept)} dialogues left out: a gold tool is not in the tools files.")
    if len(answerable) < len(rows):
        said.append(f"{len(rows) - len(answerable)} rows without gold left out.")
    if options.limit is not None:
        names = sorted(kept, key=lambda talk: draw(options.seed, talk[0].id))[: options.limit]
        chosen = {talk[0].id for talk in names}
        kept = [talk for talk in kept if talk[0].id in chosen]
    return kept, said


def _gold(row: Call) -> frozenset[str]:
    return frozenset(g.tool_id for g in row.gold)


def _with(talks: Sequence[list[Call]], least: int, most: int | None) -> list[list[Call]]:
    return [talk for talk in talks if len(talk) >= least and (most is None or len(talk) <= most)]


def _sizes(domain_of: Mapping[str, str]) -> JsonObject:
    sizes = Counter(domain_of.values())
    return dict(sorted(sizes.items()))


def _key(row: Call) -> str:
    """Changes with what is asked, not only with the row's id."""
    return f"{row.id} " + sha256_hex("\n".join([row.query, *(g.tool_id for g in row.gold)]))[:16]
