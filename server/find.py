"""``find_tools``: from a search answer to what the agent reads, kept small on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolscout.jsonl import well_formed
from toolscout.records import Server, ServerState, publisher_shown
from toolscout.server.launch import needs
from toolscout.signature import compact_signature, summary_line

if TYPE_CHECKING:
    from toolscout.index.search import Answer, Hit

_DEEPEST = 150
"""Levels of a schema that are shown: with what stands around it a client has to be able to parse it."""
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
ADVICE_UNAVAILABLE = (
    "unavailable: its server is switched off here, which the user ends by: toolscout enable {server_id}; or it did not "
    "answer when it was last checked."
)
ADVICE_ABSENT = "{product} is not installed here"
ADVICE_UNKNOWN = (
    "No server for {product} is installed or in the built-in catalog. Say so: the nearest tools are no substitute."
)
ADVICE_STRANGE = (
    "Nothing fits, and no server is known by the name {product}. If that is a product, say so; else try once more in "
    "other words."
)
ADVICE_SERVER = (
    "kind server: its tools are known once it is installed. Invoke its tool_id without arguments, and the user is "
    "asked; or they type: toolscout add {server_id}"
)
ADVICE_UNLISTED = (
    "{server_id} is configured, but its tools could not be listed: the user logs in or mends it, then types: "
    "toolscout refresh {server_id}"
)
ADVICE_UNREVIEWED = (
    "New or changed tools wait for the user's review and are not found before; the user types: {commands}"
)
ADVICE_FAILING = "{name}, which may serve this, is configured here but does not work: {why}. The user types: {command}"
ADVICE_SERVER_KEY = (
    "kind server: it takes {needs} from the user, and its tools are known once it is installed. The user sets that and "
    "types: toolscout add {server_id}"
)
ADVICE_KEY = (
    "needs_key: its server is not set up here and takes {needs} from the user, who sets that and types: toolscout add "
    "{server_id}"
)
ADVICE_MISSING = "needs_key: {server_id} lacks a value here; the user types: toolscout secret set {names}"
ADVICE_INSTALL = (
    "needs_install: invoke it, and the user is asked whether its server may be installed, where the client can ask; "
    "else the answer says which command adds it."
)

LOOK = "Use find_tools to look for the right one."
LOOK_READY = "Use find_tools (ready_only) for another one."
LOOK_INTO = 'find_tools with servers: ["{server_id}"] has them.'
LOOK_AT = "Ask them to run: {command}"

_IN_A_TERMINAL = {
    ADVICE_NO_MATCH: "No tool seems to do this. Say it in English, in other words, or one operation at a time.",
    ADVICE_DOUBTFUL: "Nothing here is a sure fit: read the summaries.",
    ADVICE_DENIED: "The tools that fit are denied by this installation's policy.",
    ADVICE_STRANGE: "Nothing fits, and no server is known by the name {product}.",
    ADVICE_UNKNOWN: "No server for {product} is installed or in the built-in catalog.",
    ADVICE_SERVER: "Its tools are known once it is added: toolscout add {server_id}",
    ADVICE_SERVER_KEY: "Its tools are known once it is added. Set {needs}, then run: toolscout add {server_id}",
    ADVICE_UNLISTED: "{server_id} is configured, but its tools could not be listed. Log in or mend it, then run: "
    "toolscout refresh {server_id}",
    ADVICE_FAILING: "{name}, which may serve this, is configured here but does not work: {why}. Run: {command}",
    ADVICE_UNREVIEWED: "New or changed tools wait for your review and are not found before: {commands}",
    ADVICE_MISSING: "{server_id} lacks a value here: toolscout secret set {names}",
    ADVICE_KEY: "{server_id} is not installed and needs {needs}. Set that, then run: toolscout add {server_id}",
    ADVICE_INSTALL: "{server_id} is not installed. To add it, run: toolscout add {server_id}",
    LOOK: "Look for the right one: toolscout find WORDS",
    LOOK_READY: "Look for another one: toolscout find WORDS --ready",
    LOOK_INTO: "toolscout find WORDS --server {server_id} has them.",
    LOOK_AT: "Run: {command}",
}
"""Advice for agents, as a person at a command line gets it; what is not here is said to both alike."""

_FILTERS = {"servers": "--server", "read_only": "--read-only", "ready_only": "--ready"}
_NEEDS = 6

_ADVICE = {
    ServerState.NEEDS_INSTALL: ADVICE_INSTALL,
    ServerState.NEEDS_KEY: ADVICE_KEY,
    ServerState.UNAVAILABLE: ADVICE_UNAVAILABLE,
}


def worded(advice: str, terminal: bool) -> str:
    """Advice as whoever reads it can act on it: an agent, or a person at a command line."""
    return _IN_A_TERMINAL.get(advice, advice) if terminal else advice


def advice_filtered(filters: Sequence[str], terminal: bool) -> str:
    """What is said where filters leave nothing, by what the reader calls them."""
    return ADVICE_FILTERED.format(filters=", ".join(_FILTERS[name] if terminal else name for name in filters))


def advice_on(
    server: Server | None,
    server_id: str,
    state: ServerState,
    *,
    whole: bool = False,
    missing: Sequence[str] = (),
    failure: str = "",
    terminal: bool = False,
) -> str:
    """What to do about a server whose tools cannot be called; nothing of one whose can. ``whole``: it stands for
    tools that are not known. ``missing``: names that a configured server refers to, without a value here; ``failure``:
    a sentence on why it does not work."""
    advice = ADVICE_MISSING if missing else _ADVICE.get(state, "")
    if whole:
        keyed = ADVICE_SERVER_KEY if state is ServerState.NEEDS_KEY else ADVICE_SERVER
        advice = ADVICE_UNLISTED if state is ServerState.READY else keyed
    wanted = ", ".join(needs(server)[:_NEEDS]) if server is not None else ""
    said = worded(advice, terminal).format(server_id=server_id, needs=wanted or "a key", names=" ".join(missing))
    return " ".join(filter(None, [said, failure if advice in ("", ADVICE_UNLISTED) else ""]))


def compact_answer(
    answer: Answer,
    *,
    state_of: StateOf,
    detail: str = "compact",
    advice: str | None = None,
    missing: Callable[[str], Sequence[str]] = lambda server_id: (),
    failure: Callable[[str], str] = lambda server_id: "",
    terminal: bool = False,
) -> dict[str, Any]:
    """The structured answer of ``find_tools`` (schema: `contract.FIND_OUTPUT`). ``missing``: names that a configured
    server refers to and that have no value here; ``failure``: a sentence on a server that does not work.

    With ``detail="compact"`` five tools come to about 500 tokens: one line of summary and one of signature each.
    ``terminal``: a person at a command line reads it.
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
        unknown = worded(ADVICE_UNKNOWN, terminal).format(product=answer.absent)
        nothing = worded(ADVICE_STRANGE if answer.strange else ADVICE_NO_MATCH, terminal).format(product=answer.strange)
        shaped["advice"] = advice or (unknown if answer.absent else nothing)
    elif advice:
        shaped["advice"] = advice
    elif shaped["tools"]:
        said = [worded(ADVICE_DOUBTFUL, terminal)] if answer.doubtful else []
        if answer.unserved:
            said.append(ADVICE_UNSERVED.format(which=_numbers(answer.unserved)))
        first, state = answer.hits[0], ServerState(shaped["tools"][0]["state"])
        if answer.absent and state is not ServerState.READY:
            said.append(f"{ADVICE_ABSENT.format(product=answer.absent)}.")
        how = advice_on(
            first.server, first.server_id, state, whole=first.tool.is_server, missing=missing(first.server_id),
            failure=failure(first.server_id), terminal=terminal,
        )  # fmt: skip
        said += [how] if how else []
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
        if shaped["state"] == ServerState.NEEDS_KEY and (wanted := needs(server)[:_NEEDS]):
            shaped["needs"] = wanted
        if server.looks_like:
            shaped["looks_like"] = server.looks_like
    if hit.why:
        shaped["why"] = "; ".join(hit.why)[:80]
    if hit.requests:
        shaped["requests"] = hit.requests
    if tool.read_only:
        shaped["read_only"] = True
    if full:
        shaped["description"] = tool.description
        shaped["input_schema"] = well_formed(tool.input_schema, deepest=_DEEPEST)
    if hit.exemplars:
        shaped["exemplars"] = [
            {"request": call.query, "arguments": gold.arguments or {}}
            for call in hit.exemplars
            for gold in call.gold
            if gold.tool_id == hit.tool_id
        ]
    return shaped
