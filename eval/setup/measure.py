"""``toolscout eval setup``: how well somebody's own servers can be searched, told apart and read.

docs/EVALUATION.md defines each number. No model is asked, nothing is fetched, and the home folder is only read.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolscout.eval.retrieval.measure import compact_text
from toolscout.eval.rows import Say, silent
from toolscout.eval.setup.confusion import LOOKS, Floats, Outcome, Pair, confusable, groups
from toolscout.eval.setup.context import context, tool_tokens
from toolscout.eval.setup.requests import Request, own_requests, reached
from toolscout.eval.setup.rules import RULES, examine
from toolscout.eval.setup.source import Installed, build
from toolscout.eval.setup.verdict import Marks, changes, verdict
from toolscout.eval.tokens import TokenCounter
from toolscout.eval.wrapped_encoder import WrappedEncoder
from toolscout.index.document import query_text, server_name, tool_text
from toolscout.index.encoder import Encoder, Kind, make_encoder
from toolscout.index.search import SearchIndex
from toolscout.records import JsonObject, Tool
from toolscout.settings import Settings

DEPTH = 20
"""Ranks looked at; a tool beyond them counts as not there."""

THREADS = 2


def measure_setup(installed: Installed, counter: TokenCounter, *, settings: Settings, say: Say = silent) -> JsonObject:
    """Index the searchable tools in a temporary folder, ask for each in its own words, and judge what comes.

    Raises BadInput for more tools than a person's setup has.
    """
    tools = installed.searchable
    held = [tool for tool in installed.tools if installed.is_held(tool)]
    names = _names(installed)
    requests = own_requests(tools, installed.exemplars, installed.log)
    outcomes: list[Outcome] = []
    answers: list[int] = []
    vectors: Floats | None = None
    if tools:
        encoder = Remembering(make_encoder(settings, threads=THREADS), installed.vectors)
        with tempfile.TemporaryDirectory(prefix="toolscout-setup-") as folder:
            say(f"indexing {len(tools)} tools")
            index = build(installed, Path(folder), settings, encoder)
            try:
                say(f"asking {len(requests)} requests")
                encoder.encode([query_text(request.text) for request in requests], kind="query")  # side by side
                outcomes, answers = _ask(index, requests, counter)
            finally:
                index.close()
        vectors = encoder.encode([tool_text(t, installed.servers.get(t.server_id)) for t in tools])
    pairs = confusable(tools, vectors, outcomes) if vectors is not None else []
    findings = examine(tools)
    marks = Marks(tools, outcomes, pairs, findings)
    tokens = {tool.tool_id: tool_tokens(tool, counter) for tool in tools}
    return {
        "n": {
            "servers": len(installed.servers),
            "tools": len(installed.tools),
            "searchable": len(tools),
            "held_back": len(held),
            "requests": dict(sorted(Counter(r.kind for r in requests).items())),
        },
        "tokenizer": counter.name,
        "encoder": settings.encoder if ":" in settings.encoder or settings.encoder == "default" else "a folder",
        "verdict": verdict(marks.mean(tools)) if tools else None,
        "verdicts": _verdicts(installed, tools, held, marks, names, pairs),
        "changes": changes(marks, names, tokens),
        "context": context(tools, held, installed.servers, answers, counter),
        "confusable": {"pairs": [pair.to_dict() for pair in pairs], "groups": groups(pairs)},
        "descriptions": {
            "by_rule": {rule: sum(f.rule == rule for f in findings) for rule in RULES},
            "findings": [finding.to_dict() for finding in findings],
        },
        "not_found": _not_found(outcomes),
        "never_reached": _never_reached(installed, tools),
        "held_back": [
            {
                "tool_id": t.tool_id,
                "review": t.review.value,
                "findings": sorted({str(f.get("code")) for f in t.findings}),
            }
            for t in held
        ],
        "notes": installed.notes,
    }


class Remembering(WrappedEncoder):
    """Encodes each text once; of the documents in ``known`` the vectors are given."""

    def __init__(self, encoder: Encoder, known: Mapping[str, Floats]) -> None:
        super().__init__(encoder)
        self._known: dict[tuple[str, str], Floats] = {("document", text): vector for text, vector in known.items()}

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Vectors of the texts: float32 [n, dim], L2-normalised."""
        import numpy as np

        fresh = [text for text in dict.fromkeys(texts) if (kind, text) not in self._known]
        if fresh:
            made = self._encoder.encode(fresh, kind=kind)
            self._known.update({(kind, text): vector for text, vector in zip(fresh, made, strict=True)})
        found = [self._known[kind, text] for text in texts]
        return np.stack(found) if found else np.zeros((0, self.dim), dtype=np.float32)


def _ask(index: SearchIndex, requests: Sequence[Request], counter: TokenCounter) -> tuple[list[Outcome], list[int]]:
    """Outcomes of all requests, and the tokens of the answers to the tools' own words."""
    outcomes, answers = [], []
    for request in requests:
        whole = index.find(request.text, limit=DEPTH, dynamic=False, abstain=False)
        refused = False
        if request.kind == "words":
            refused = index.find(request.text).no_match
            # Its own words make one tool stand clear, and the answer short; people's words rarely do.
            answers.append(counter(compact_text(index.find(request.text, dynamic=False, abstain=False))))
        outcomes.append(Outcome(request, list(dict.fromkeys(hit.tool_id for hit in whole.hits)), refused))
    return outcomes, answers


def _names(installed: Installed) -> dict[str, str]:
    """Names of servers to show; the id where two have one name."""
    ids = {*installed.servers, *(t.server_id for t in installed.tools)}
    shown = {i: server_name(installed.servers.get(i), i) for i in ids}
    often = Counter(shown.values())
    return {i: i if often[name] > 1 else name for i, name in shown.items()}


def _verdicts(
    installed: Installed,
    tools: Sequence[Tool],
    held: Sequence[Tool],
    marks: Marks,
    names: dict[str, str],
    pairs: Sequence[Pair],
) -> list[JsonObject]:
    """A line for each server, worst first; those without a searchable tool have no mark."""
    confused = {tool_id for pair in pairs if pair.copy or pair.told_apart <= 0.5 for tool_id in pair.ids}
    faulty = {finding.tool_id for finding in marks.findings}
    rows: list[JsonObject] = []
    for server_id, name in names.items():
        mine = [t for t in tools if t.server_id == server_id]
        row: JsonObject = {
            "server_id": server_id,
            "name": name,
            "tools": len(mine),
            "held_back": sum(t.server_id == server_id for t in held),
            "confusable": sum(t.tool_id in confused for t in mine),
            "badly_described": sum(t.tool_id in faulty for t in mine),
        }
        empty: JsonObject = {"letter": None, "score": None, "found": None, "distinct": None, "described": None}
        rows.append(row | (verdict(marks.mean(mine)) if mine else empty))
    return sorted(rows, key=lambda r: (r["score"] is None, r["score"] or 0, r["server_id"]))


def _not_found(outcomes: Sequence[Outcome]) -> list[JsonObject]:
    """Tools that their own words do not bring among the first five, or for which nothing is offered."""
    found = []
    for outcome in outcomes:
        rank = outcome.rank()
        if outcome.request.kind == "words" and (outcome.refused or rank is None or rank > LOOKS):
            found.append(
                {
                    "tool_id": outcome.request.tool_id,
                    "request": outcome.request.text,
                    "rank": rank,
                    "refused": outcome.refused,
                    "first": [t for t in outcome.ranked[:3] if t != outcome.request.tool_id],
                }
            )
    return found


def _never_reached(installed: Installed, tools: Sequence[Tool]) -> JsonObject:
    """Tools that the call log never names; ``tools`` is None where nothing was logged, which proves nothing."""
    if not installed.log:
        return {"logged": 0, "tools": None}
    counts = reached(installed.log)
    return {"logged": len(installed.log), "tools": [t.tool_id for t in tools if t.tool_id not in counts]}
