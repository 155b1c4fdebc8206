"""Other searches over the same tools and requests, measured in the same run and scored the same way.

Named ones: ``fastmcp`` and ``fastmcp-regex`` (`fastmcp_search`), ``bm25s`` and ``bm25s-words`` (`words`), ``mcp-zero``
(`mcp_zero`). Any encoder folder is a peer of its own (`dense`), and so is any program that speaks a small protocol
(`command`): packaged rivals run that way, in their own environment. docs/EVALUATION.md says what each one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from toolscout.errors import BadInput
from toolscout.eval.metrics import Judged, spread
from toolscout.eval.peers import fastmcp_search, mcp_zero, words
from toolscout.eval.peers.base import UNNAMED, PeerPlan, PeerTask, RankedPeer
from toolscout.eval.peers.command import PeerFailed, ask_command
from toolscout.eval.peers.dense import ask_dense
from toolscout.eval.retrieval.pieces import part_key, weights_of
from toolscout.eval.rows import Say, silent
from toolscout.eval.work_file import Work
from toolscout.records import Call, JsonObject, Server, Tool
from toolscout.settings import Settings

__all__ = ["PEERS", "PeerPlan", "check_peers", "measure_peers"]

PEERS: dict[str, Callable[[PeerTask], RankedPeer]] = {
    "fastmcp": fastmcp_search.ask_bm25,
    "fastmcp-regex": fastmcp_search.ask_regex,
    "bm25s": words.ask_plain,
    "bm25s-words": words.ask_index_words,
    "mcp-zero": mcp_zero.ask,
}


def measure_peers(
    plan: PeerPlan,
    tools: Mapping[str, Tool],
    servers: Mapping[str, Server],
    calls: Sequence[Call],
    count_tokens: Callable[[str], int],
    *,
    settings: Settings | None = None,
    cache: Path | None = None,
    done: Work | None = None,
    say: Say = silent,
) -> JsonObject:
    """``{peer: {about, n, strict, equivalent, latency_ms, answer_tokens, index_seconds, ...}}``, in the plan's order.

    A program that fails has ``{about, failed: SENTENCE}`` instead. Peers that ``done`` has are not asked again, those
    that failed are. Raises BadInput for a peer that is unknown or
    whose package is missing.
    """
    check_peers(plan)
    rows = [row for row in calls if row.gold]
    task = PeerTask(tools, servers, rows, count_tokens, settings or Settings(), plan.structured, cache, say)
    asks: dict[str, Callable[[PeerTask], RankedPeer]] = {name: PEERS[name] for name in plan.names}
    asks |= {name: partial(ask_dense, name=name, folder=folder) for name, folder in plan.encoders.items()}
    asks |= {name: partial(ask_command, name=name, command=command) for name, command in plan.commands.items()}
    results: JsonObject = {}
    for name, ask in asks.items():
        weights = weights_of(plan.encoders[name]) if name in plan.encoders else []
        known = part_key(f"peer {name}", rows, plan.commands.get(name), weights, plan.structured)
        if done is not None and known in done:
            say(f"{name} was asked before")
            results[name] = done[known]["found"]
            continue
        say(f"asking {name}")
        try:
            results[name] = _scored(ask(task), rows)
            if done is not None:
                done.add(known, {"found": results[name]})
        except ImportError as error:
            raise BadInput(f"The peer {name} needs a package: {error}.", "Install toolscout[eval].") from None
        except PeerFailed as error:
            say(str(error))
            results[name] = {"about": UNNAMED, "failed": str(error)}
    return results


def _scored(peer: RankedPeer, rows: Sequence[Call]) -> JsonObject:
    from toolscout.eval.retrieval.measure import readings

    found: JsonObject = {
        "about": peer.about,
        "n": len(rows),
        **readings([_judged(row, peer.ranked[row.id]) for row in rows]),
        "latency_ms": spread(peer.ms),
        "answer_tokens": spread(peer.answer_tokens, 1),
        "index_seconds": round(peer.index_seconds, 2),
        **peer.extra,
    }
    asked = [row for row in rows if row.id in peer.structured]
    if asked:
        found["structured"] = {
            "n": len(asked),
            **readings([_judged(row, peer.structured[row.id]) for row in asked]),
            "latency_ms": spread(peer.structured_ms),
        }
    return found


def _judged(row: Call, ranked: Sequence[str]) -> Judged:
    gold = frozenset(g.tool_id for g in row.gold)
    return Judged(ranked, gold, gold | frozenset(row.relevant or ()))


def check_peers(plan: PeerPlan) -> None:
    """Raises BadInput for a peer that does not exist or cannot be started."""
    plan.check(list(PEERS))
