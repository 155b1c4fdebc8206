"""What ``suggest_call`` is asked with and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolscout.records import Call, JsonObject, Tool

Decoding = Literal["free", "constrained", "schema", "repair"]
"""``free``: what the model writes, whatever it is; ``constrained``: by the grammar; ``repair``: the values are checked
as well, and what is wrong or absent is asked for again; ``schema``: constrained by a JSON Schema and checked, as for
endpoints that take no grammar; what is absent is not asked for there."""


@dataclass(frozen=True)
class Candidate:
    """A tool that may do the task, its search score, and worked examples of its use."""

    tool: Tool
    score: float = 0.0
    exemplars: list[Call] = field(default_factory=list)


@dataclass(frozen=True)
class SuggestedCall:
    """One call. It is ``ready`` only if nothing is missing and the arguments validate."""

    tool_id: str
    arguments: JsonObject
    confidence: float
    missing: list[str] = field(default_factory=list)
    ready: bool = False
    id: str = "1"
    depends_on: list[str] = field(default_factory=list)
    skeleton: JsonObject | None = None
    """For a call that is not ready: its shape, placeholders like ``"<city: string>"`` where values lack."""


@dataclass(frozen=True)
class Suggestion:
    """Calls, or why there is none. Ready ones always validate (``"$1.path"`` references set aside)."""

    calls: list[SuggestedCall]
    alternatives: list[str] = field(default_factory=list)
    """Ids of other candidates that the model, or without one the search, holds plausible; likeliest first."""
    exemplars: list[Call] = field(default_factory=list)
    abstained: bool = False
    reason: str | None = None
    model: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    first_token_seconds: float | None = None
    """From the request, the choice of the tool included, to the model's first token; None where it does not tell."""

    @property
    def schema_valid(self) -> bool:
        """True if there is a call and every call is ready."""
        return bool(self.calls) and all(c.ready for c in self.calls)

    def to_answer(self, tools: Mapping[str, Tool] | None = None) -> JsonObject:
        """The structured answer of the ``suggest_call`` tool. ``tools`` add each call's signature."""
        from toolscout.signature import compact_signature

        calls = []
        for call in self.calls:
            row: JsonObject = {
                "tool_id": call.tool_id,
                "arguments": call.arguments,
                "confidence": round(call.confidence, 3),
                "ready": call.ready,
                "missing": call.missing,
                "id": call.id,
                "depends_on": call.depends_on,
            }
            if call.skeleton is not None:
                row["skeleton"] = call.skeleton
            tool = (tools or {}).get(call.tool_id)
            if tool is not None and not call.ready:
                row["signature"] = compact_signature(tool)
            calls.append(row)
        answer: JsonObject = {"calls": calls, "abstained": self.abstained}
        if self.alternatives:
            answer["alternatives"] = self.alternatives
        if self.exemplars:
            answer["exemplars"] = [
                {"request": e.query, "arguments": e.gold[0].arguments or {}} for e in self.exemplars if e.gold
            ]
        if self.reason:
            answer["reason"] = self.reason
        if self.model:
            answer["model"] = self.model
        return answer
