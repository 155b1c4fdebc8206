"""``find_tools``: from a search answer to what the agent reads, kept small on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolscout.records import Server, ServerState, publisher_shown
from toolscout.server.launch import needs
from toolscout.signature import compact_signature, summary_line

if TYPE_CHECKING:
    from toolscout.index.search import Answer, Hit

StateOf = Callable[[Server | None, str], ServerState]

ADVICE_NO_MATCH = (
    "No tool here seems to do this. Try once more, in English and with the operation in other words, or one operation "
    "at a time; if that finds nothing, say so instead of forcing a tool."
)
ADVICE_DOUBTFUL = (
    "Nothing here is a sure fit. Read the summaries: if none does the operation, say so instead of forcing a tool."
)
ADVICE_UNSERVED = "No tool here seems to serve {which}; ask for that once more in other words, by itself."
ADVICE_FILTERED = (
    "None of the tools that pass the filters ({filters}) does this. "
    "Ask once more without them, to see what else is here."
)
ADVICE_PROBED = (
    "The tools that fit are of servers that did not answer when they were tried just now. Ask again later, or for "
    "another way to do this."
)
ADVICE_DENIED = "The tools that fit are denied by this installation's policy. Go on without them, or tell the user."
ADVICE_UNAVAILABLE = "unavailable: its server is not configured here and did not answer when it was last checked."
ADVICE_ABSENT = "{product} is not installed here"
ADVICE_UNKNOWN = (
    "No server for {product} is installed or in the built-in catalog. Say so: the nearest tools are no substitute."
)
ADVICE_SERVER = (
    "kind server: its tools are known once it is installed. Invoke its tool_id without arguments, and the user is "
    "asked; or they type: toolscout add {server_id}"
)
ADVICE_UNLISTED = (
    "{server_id} is configured, but its tools could not be listed: the user logs in or mends it, then types: "
    "toolscout refresh {server_id}"
)
ADVICE_KEY = (
    "needs_key: its server is not set up here and takes {needs} from the user, who sets that and types: toolscout add "
    "{server_id}"
)
ADVICE_INSTALL = (
    "needs_install: invoke it, and the user is asked whether its server may be installed, where the client can ask; "
    "else the answer says which command adds it."
)

_NEEDS = 6

_ADVICE = {
    ServerState.NEEDS_INSTALL: ADVICE_INSTALL,
    ServerState.NEEDS_KEY: ADVICE_KEY,
    ServerState.UNAVAILABLE: ADVICE_UNAVAILABLE,
}


def compact_answer(
    answer: Answer, *, state_of: StateOf, detail: str = "compact", advice: str | None = None
) -> dict[str, Any]:
    """The structured answer of ``find_tools`` (schema: `contract.FIND_OUTPUT`).

    With ``detail="compact"`` five tools come to about 500 tokens: one line of summary and one of signature each.
    """
    shaped: dict[str, Any] = {
        "tools": [_tool(hit, state_of, full=detail == "full") for hit in answer.hits],
        "no_match": answer.no_match,
        "confidence": round(answer.probability, 2),
    }
    if answer.unserved:
        shaped["unserved"] = answer.unserved
    if answer.no_match:
        shaped["nearest"] = [{"tool_id": hit.tool_id, "summary": summary_line(hit.tool)} for hit in answer.nearest[:3]]
        shaped["advice"] = advice or (
            ADVICE_UNKNOWN.format(product=answer.absent) if answer.absent else ADVICE_NO_MATCH
        )
    elif advice:
        shaped["advice"] = advice
    elif shaped["tools"]:
        said = [ADVICE_DOUBTFUL] if answer.doubtful else []
        if answer.unserved:
            said.append(ADVICE_UNSERVED.format(which=_numbers(answer.unserved)))
        first = shaped["tools"][0]
        if answer.absent and first["state"] != ServerState.READY:
            said.append(f"{ADVICE_ABSENT.format(product=answer.absent)}.")
        server_id = answer.hits[0].server_id
        wanted = ", ".join(first.get("needs", ())) or "a key"
        if "kind" in first and first["state"] == ServerState.READY:
            said.append(ADVICE_UNLISTED.format(server_id=server_id))
        elif "kind" in first:
            said.append(ADVICE_SERVER.format(server_id=server_id))
            said += [f"It takes {wanted} from the user, set beforehand."] * (first["state"] == ServerState.NEEDS_KEY)
        elif first["state"] in _ADVICE:
            said.append(_ADVICE[first["state"]].format(server_id=server_id, needs=wanted))
        if said:
            shaped["advice"] = " ".join(said)
    return shaped


def missed_servers(names: Sequence[str], *, some: bool) -> str:
    """What is said of ``servers`` that are not here; ``some``: others that were named are, and only they searched."""
    said = ", ".join(repr(name[:60]) for name in names)
    return f"No server here is called {said}; {'the others' if some else 'all servers'} were searched."


def _numbers(requests: list[int]) -> str:
    said = [f"request {number}" for number in requests]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _tool(hit: Hit, state_of: StateOf, *, full: bool) -> dict[str, Any]:
    tool, server = hit.tool, hit.server
    shaped: dict[str, Any] = {"tool_id": hit.tool_id}
    if tool.is_server:
        shaped["kind"] = "server"
    if tool.title and tool.title.casefold() != tool.name.casefold():
        shaped["title"] = tool.title[:80]
    shaped["summary"] = summary_line(tool)
    shaped["signature"] = compact_signature(tool)
    shaped["score"] = round(hit.score, 2)
    if server is not None and server.name and server.name != hit.server_id:
        shaped["server"] = server.name[:60]
    shaped["state"] = str(state_of(server, hit.server_id))
    if shaped["state"] != ServerState.READY and server is not None:
        if server.publisher:
            shaped["publisher"] = publisher_shown(server)
        if wanted := needs(server)[:_NEEDS]:
            shaped["needs"] = wanted
    if hit.why:
        shaped["why"] = "; ".join(hit.why)[:80]
    if hit.requests:
        shaped["requests"] = hit.requests
    if tool.read_only:
        shaped["read_only"] = True
    if full:
        shaped["description"] = tool.description
        shaped["input_schema"] = tool.input_schema
    if hit.exemplars:
        shaped["exemplars"] = [
            {"request": call.query, "arguments": gold.arguments or {}}
            for call in hit.exemplars
            for gold in call.gold
            if gold.tool_id == hit.tool_id
        ]
    return shaped
