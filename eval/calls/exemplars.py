"""Worked requests for the prompts of `eval calls`: the nearest ones by the encoder, as MCP-Flow retrieves its examples
(arXiv 2510.24284, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.errors import BadInput
from toolscout.index.document import query_text
from toolscout.jsonl import read_records
from toolscout.records import Call, Tool, canonical_json, sha256_hex

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from toolscout.index.encoder import Encoder

MOST = 5
"""Exemplars of one prompt."""


class Exemplars:
    """Calls of other requests, one gold call each, to be shown to the model.

    With ``any_tool`` the five nearest of all are shown, as MCP-Flow does, and the product for untuned models;
    else the nearest of those that call a candidate, which the product shows to every model.
    """

    def __init__(self, calls: Sequence[Call], encoder: Encoder, *, any_tool: bool = False) -> None:
        usable = [c for c in calls if len(c.gold) == 1 and c.gold[0].arguments is not None and c.query.strip()]
        if not usable:
            raise BadInput("The exemplar files hold no request with one gold call.", "Give calls with --exemplars.")
        self.fingerprint = sha256_hex(canonical_json([any_tool, [c.model_dump(mode="json") for c in usable]]))
        self.any_tool = any_tool
        self._encoder = encoder
        self._of_tool: dict[str, list[Call]] = {}
        for call in usable:
            self._of_tool.setdefault(call.gold[0].tool_id, []).append(call)
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}

    def nearest(self, row: Call, candidates: Sequence[Tool]) -> dict[str, list[Call]]:
        """The exemplars for a row by the candidate they go with, the nearest first; never the row itself.

        With ``any_tool`` they all go with the first candidate.
        """
        wanted = self._of_tool if self.any_tool else [tool.tool_id for tool in candidates]
        others = [
            call
            for tool_id in wanted
            for call in self._of_tool.get(tool_id, ())
            if call.id != row.id and _plain(call.query) != _plain(row.query)
        ]
        if not others:
            return {}
        fresh = list(dict.fromkeys(c.query for c in others if c.query not in self._vectors))
        if fresh:
            vectors = self._encoder.encode([query_text(q) for q in fresh], kind="query")
            self._vectors |= dict(zip(fresh, vectors, strict=True))
        asked = self._encoder.encode([query_text(row.query)], kind="query")[0]
        best = sorted(others, key=lambda c: -float(self._vectors[c.query] @ asked))[:MOST]
        if self.any_tool:
            return {candidates[0].tool_id: best}
        found: dict[str, list[Call]] = {}
        for call in best:
            found.setdefault(call.gold[0].tool_id, []).append(call)
        return found


def read_exemplars(paths: Sequence[Path], encoder: Encoder, *, any_tool: bool = False) -> Exemplars:
    """Exemplars from files of calls. Raises BadInput when none can be used."""
    return Exemplars([call for path in paths for call in read_records(path, Call)], encoder, any_tool=any_tool)


def _plain(query: str) -> str:
    return " ".join(query.casefold().split())
