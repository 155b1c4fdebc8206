"""The question whether a call may be made: what a person is shown, and what stands for their yes in between.

As with installations (`server.install`): a stateless client gets the question as an ``input_required`` result and
calls again with the answer; a client of the 2025 handshake is asked during the call. What comes back in
``requestState`` names the call that was shown, arguments included, and is sealed by FastMCP, so a yes holds for nothing
else, and it is good once. A tool that itself asks for input after a yes goes on over several requests: its own state
travels inside of ours, behind the yes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolscout.errors import NotAllowed
from toolscout.records import JsonObject, Tool, canonical_json, sha256_hex
from toolscout.server.asking import content_of
from toolscout.server.policy.file import Decision, Effect
from toolscout.server.telling.plain import plain

if TYPE_CHECKING:
    from toolscout.server.upstreams.link import Relayed

KEY = "toolscout_policy"
"""Name of the question among a result's input requests."""

_ASKED = "toolscout-asked:"
_APPROVED = "toolscout-approved:"
_YES = "allow"
_MOST_CHARACTERS = 20_000
"""Characters of arguments that a person is shown; a longer call is refused, for a yes must not cover what is hidden."""
_DECLARED = {
    Effect.READ_ONLY: "it only reads",
    Effect.ADDITIVE: "it adds and changes nothing that is there",
    Effect.DESTRUCTIVE: "it may change or destroy what is there",
    Effect.UNDECLARED: "nothing of what it does",
}


def digest_of(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the call that is asked about, the tool as it is now included."""
    return sha256_hex(canonical_json([tool.tool_id, tool.fingerprint, arguments]))


def question_params(tool: Tool, arguments: Mapping[str, Any], decision: Decision, before: str = "") -> JsonObject:
    """The parameters of ``elicitation/create`` (form mode) for one call, every argument in full.

    Raises:
        NotAllowed: the arguments are too long to be read by a person.
    """
    shown = [f"  {plain(str(name))}: {_shown(value)}" for name, value in arguments.items()]
    if (length := sum(map(len, shown))) > _MOST_CHARACTERS:
        raise NotAllowed(
            f"A person must agree to this call, and its arguments have {length:,} characters: too many to show.",
            f"Split it into calls of at most {_MOST_CHARACTERS:,}, or have a rule of the policy allow it.",
        )
    reason = decision.rule.reason if decision.rule is not None else ""
    lines = [
        f"{before}An agent wants to call the tool '{plain(tool.name)}' of the MCP server '{plain(tool.server_id)}'.",
        *([f"Why you are asked: {plain(reason)}"] if reason else []),
        f"Its server says of it: {_DECLARED[decision.effect]}.",
        "Arguments:" if arguments else "Arguments: none",
        *shown,
    ]
    yes = {"type": "boolean", "title": "Allow this call", "description": "Once, as shown.", "default": False}
    schema = {"type": "object", "properties": {_YES: yes}, "required": [_YES]}
    return {"mode": "form", "message": "\n".join(lines), "requestedSchema": schema}


def question(params: JsonObject, digest: str) -> JsonObject:
    """The question as a result of the stateless era."""
    return {
        "resultType": "input_required",
        "inputRequests": {KEY: {"method": "elicitation/create", "params": params}},
        "requestState": _state(_ASKED, digest),
    }


def is_yes(answer: object) -> bool:
    """Whether an answer is a yes: the form sent, and the box in it ticked."""
    content = content_of(answer)
    return content is not None and content.get(_YES) is True


def a_yes() -> JsonObject:
    """The answer of a person who agreed in another way than by a form."""
    return {"action": "accept", "content": {_YES: True}}


@dataclass(frozen=True)
class Standing:
    """What a request's state says: the call that was asked about, or (``approved``) agreed to in an earlier round.

    ``inner`` is the tool's own state; ``answer`` is what a person answered, None if nothing came.
    """

    approved: bool
    digest: str
    nonce: str
    inner: str
    answer: object


def standing_of(relayed: Relayed) -> Standing | None:
    """Where a request stands; None if nothing of ours came with it."""
    state = relayed.get("request_state") or ""
    for prefix in (_ASKED, _APPROVED):
        if state.startswith(prefix):
            digest, nonce, inner = [*state.removeprefix(prefix).split(":", 2), "", ""][:3]
            answer = (relayed.get("input_responses") or {}).get(KEY)
            return Standing(prefix == _APPROVED, digest, nonce, inner, answer)
    return None


def without_ours(relayed: Relayed) -> Relayed:
    """What is relayed to the upstream: its own state and answers, without ours."""
    standing = standing_of(relayed)
    if standing is None:
        return relayed
    others = {k: v for k, v in (relayed.get("input_responses") or {}).items() if k != KEY}
    return {**relayed, "request_state": standing.inner or None, "input_responses": others or None}


def carrying_on(result: JsonObject, digest: str) -> JsonObject:
    """A tool's own question after a yes: with the yes in its state, so that the next request is not asked about."""
    return {**result, "requestState": _state(_APPROVED, digest, result.get("requestState") or "")}


def _state(prefix: str, digest: str, inner: str = "") -> str:
    return f"{prefix}{digest}:{secrets.token_hex(8)}:{inner}"


def _shown(value: object) -> str:
    return plain(json.dumps(value, ensure_ascii=False, default=str))
