"""``invoke``: check a call, make it, relay the result as it came; every failure is a text a model can act on."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Unpack

from toolscout.errors import InvalidArguments, NotAllowed, NotFound, ToolscoutError, UpstreamError
from toolscout.records import EnvVar, Install, JsonObject, Review, Server, ServerState, Tool
from toolscout.server.asking import Asking, CannotAsk
from toolscout.server.find import LOOK, LOOK_AT, LOOK_INTO, LOOK_READY, worded
from toolscout.server.install import Installer, answer_in, refused, without_answer
from toolscout.server.launch import how_to_add, install_command
from toolscout.server.offer import Offer, accepted
from toolscout.server.policy.governor import Governor, Passage, PolicyRefusal
from toolscout.server.questions import named
from toolscout.server.telling.telemetry import current_call
from toolscout.server.upstreams.errors import Refused
from toolscout.server.upstreams.pool import UpstreamPool, as_result, checked
from toolscout.settings import Settings
from toolscout.signature import compact_signature
from toolscout.validation import bounded_schema, explain, schema_trouble, unwrap_envelope, validate

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from toolscout.server.client_identity import ClientIdentity
    from toolscout.server.upstreams.link import Relayed

_LONGEST_TIMEOUT = 3600.0
_INVALID_PARAMS = -32602
_MISSING_CAPABILITY = -32021
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_SUGGESTED = 5
_MOST_LIVES = 10_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_NAMES_A_SERVER = "'{server_id}' is a server, not a tool. Its tools can be called: "
_INSTALLED = "'{server_id}' is installed now. Nothing was called, as its tools were not known before: "
_VOLATILE = (
    "Where its description changes with every start (a date, a folder), they can let a policy file approve its"
    " changes: TOOLSCOUT_REVIEW_POLICY, docs/GUARD.md."
)
_OFFERED = frozenset({ServerState.NEEDS_INSTALL, ServerState.NEEDS_KEY})


class Invoker:
    """Makes calls by tool id.

    ``find_tool`` and ``server_of`` look up records, ``suggest_ids`` gives the ids nearest to a wrong one,
    ``signature_of`` the signature of such a one, both without asking the catalogue. Without an
    ``installer`` nobody is asked whether a server may be installed; without a ``governor`` no policy holds. ``look``
    brings what ``find_tool`` knows of a tool up to date; ``waiting`` lists a server anew, and says how many of its
    tools wait for a review. ``terminal``: a person at a command line reads the answers.
    """

    def __init__(
        self,
        find_tool: Callable[[str], Tool | None],
        server_of: Callable[[str], Server | None],
        suggest_ids: Callable[[str], list[str]],
        signature_of: Callable[[str], str | None],
        pool: UpstreamPool,
        settings: Settings,
        installer: Installer | None = None,
        governor: Governor | None = None,
        look_again: Callable[[str], None] | None = None,
        look: Callable[[str], Awaitable[None]] | None = None,
        waiting: Callable[[str], Awaitable[int]] | None = None,
        terminal: bool = False,
    ) -> None:
        self._look = look
        self._waiting = waiting
        self._worded = partial(worded, terminal=terminal)
        self._look_again = look_again
        self._find_tool = find_tool
        self._server_of = server_of
        self._suggest_ids = suggest_ids
        self._signature_of = signature_of
        self._pool = pool
        self._settings = settings
        self._installer = installer
        self._governor = governor
        self._lives: dict[tuple[str, str, str], int] = {}

    async def invoke(
        self,
        tool_id: str,
        arguments: object,
        *,
        timeout_s: float | None = None,
        dry_run: bool = False,
        **relayed: Unpack[Relayed],
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; expected failures come back as results with ``is_error``, never as exceptions."""
        raw = await self.invoke_raw(tool_id, arguments, timeout_s=timeout_s, dry_run=dry_run, **relayed)
        try:
            return as_result(tool_id.partition("/")[0], tool_id, raw)
        except UpstreamError as error:
            return as_result("", "", _error(error.sentence()))

    async def invoke_raw(
        self,
        tool_id: str,
        arguments: object,
        *,
        timeout_s: float | None = None,
        dry_run: bool = False,
        asking: Asking | None = None,
        client: Callable[[], ClientIdentity] | None = None,
        **relayed: Unpack[Relayed],
    ) -> JsonObject:
        """As :meth:`invoke`, with the result in wire form: what the upstream sent is not parsed and made anew.

        With ``asking`` the person behind the call may be asked whether a server that is not installed shall be, and
        whether the call may be made where the policy wants that. ``client`` says who calls; it is asked only where
        there is a policy.

        Raises:
            Refused: the upstream needs a capability that the client said, with this call, that it lacks. That is
                between the two programs: the client gets the protocol's own error, which it may act on.
        """
        tool_id = self._bare(tool_id)
        try:
            passage = (
                self._governor.passage(tool_id, client or _ourselves, arguments) if self._governor is not None else None
            )
        except PolicyRefusal as error:
            if (watched := current_call()) is not None:
                watched.error = error.kind
            return error.result()
        who = client or _ourselves
        call = partial(self._invoke, tool_id, arguments, timeout_s, dry_run, asking, relayed, passage, who)
        if passage is None:
            return await call()
        try:
            result = await call()
        except ToolscoutError:
            passage.close()
            raise
        except BaseException as error:
            passage.close("cancelled" if isinstance(error, asyncio.CancelledError) else "failed")
            raise
        passage.close()
        return result

    async def _invoke(
        self,
        tool_id: str,
        arguments: object,
        timeout_s: object,
        dry_run: bool,
        asking: Asking | None,
        relayed: Relayed,
        passage: Passage | None,
        who: Callable[[], ClientIdentity],
    ) -> JsonObject:
        try:
            tool = self._tool(tool_id)
            if self._installer is not None:
                await self._installer.settled(tool.server_id)
                tool = self._tool(tool_id)
            answer = answer_in(relayed)
            if answer is not None and not accepted(answer):
                return _noted(passage, "install_declined", refused(tool.server_id, tool.name, answer))
            server = self._server_of(tool.server_id)
            if (watched := current_call()) is not None:
                watched.server, watched.target = tool.server_id, tool.name
            # Before the arguments are looked at: what is said of those shows the tool's own words.
            if passage is not None:
                passage.about(tool)
            self._check_review(tool, server)
            if passage is not None:
                # And before anything is offered: what may not be called need not be installed.
                passage.decide(tool, unwrap_envelope(tool_id, arguments, tool.input_schema))
            absence = self._absence(tool, server)
            if tool.is_server and absence is None:
                return _noted(passage, "invalid_arguments", _error(self._into(_NAMES_A_SERVER, tool)))
            installs = asking if asking is not None and asking.installs and not dry_run else None
            offer = await self._offer(tool, server, absence, installs)
            sent = unwrap_envelope(tool_id, arguments, tool.input_schema)
            if problems := validate(sent, tool.input_schema, key=tool.fingerprint or None):
                return _noted(passage, "invalid_arguments", _error(explain(problems, tool)))
            timeout = _seconds(timeout_s)
            if dry_run:
                return self._dry_run(tool, sent, passage)
            if offer is not None and asking is not None and self._installer is not None:
                try:
                    result = await self._installer.ask(offer, tool, asking, relayed)
                except CannotAsk:
                    raise absence or _not_installed(tool.server_id, offer.server) from None
                if result is not None:
                    return _noted(passage, "install_asked", result)
                if tool.is_server:
                    return _noted(passage, "installed", _text(self._into(_INSTALLED, tool)))
                tool = self._installed(tool_id)
            relayed = without_answer(relayed)
            if passage is not None:
                if offer is not None:
                    # The server itself may declare more of the tool than the catalogue did.
                    passage.decide_again(tool, sent)
                if (result := await passage.admit(asking, relayed, partial(self._still, tool_id))) is not None:
                    return result
                relayed = passage.forward(relayed)
            return await self._call(tool, sent, timeout, relayed, passage, who)
        except ToolscoutError as error:
            if passage is not None:
                passage.fail(error)
            if (watched := current_call()) is not None:
                watched.error = error.kind
            if isinstance(error, PolicyRefusal):
                return error.result()
            if isinstance(error, InvalidArguments):
                found = self._find_tool(tool_id) if isinstance(tool_id, str) else None
                return _error(f"{error.sentence()}\n{_usage(found)}" if found else error.sentence())
            if isinstance(error, Refused) and error.code == _MISSING_CAPABILITY and _says_what_it_can(relayed):
                raise error if passage is None else passage.finish_refusal(error) from None
            return _failure(error, passage)

    async def _call(
        self,
        tool: Tool,
        sent: JsonObject,
        timeout: float | None,  # noqa: ASYNC109
        relayed: Relayed,
        passage: Passage | None,
        who: Callable[[], ClientIdentity],
    ) -> JsonObject:
        try:
            admit = partial(self._admit, tool.tool_id)  # what the server says of it may be known only when it lives
            told = self._pool.told(tool.server_id)
            result = await self._pool.call_raw(tool.server_id, tool.name, sent, timeout=timeout, admit=admit, **relayed)
            # Checked, not rebuilt: the client would get a bare protocol error for what is no tool result.
            result = named(tool.server_id, checked(tool.server_id, tool.name, result))
            hint = self._sandbox_hint(tool, sent, result)
            answer = result if passage is None else passage.finish(result)
            if answer.get("resultType") == "input_required":
                return answer
            news = await self._news(tool.server_id) if self._pool.told(tool.server_id) != told else ""
            return _remarked(answer, hint, self._started_anew(tool.server_id, who()), news)
        except Refused as error:
            if error.code == _INVALID_PARAMS:
                return _noted(passage, "upstream_error", _failure(error, passage, _usage(tool)))
            if hint := self._sandbox_hint(tool, sent, error):
                error.hint = hint
            raise
        except NotFound:
            raise _not_installed(tool.server_id, self._server_of(tool.server_id)) from None
        except UpstreamError as error:
            if hint := self._sandbox_hint(tool, sent, error):
                error.hint = hint if error.kind == "upstream_start_failed" else f"{error.hint} {hint}".strip()
            raise

    def _started_anew(self, server_id: str, client: ClientIdentity) -> str:
        """What to say where the process that answers is another one than this client's last call went to."""
        life, ended = self._pool.life(server_id)
        at = (server_id, client.key, client.name)
        before = self._lives.pop(at, life)
        self._lives[at] = life  # the last one now
        if len(self._lives) > _MOST_LIVES:
            del self._lives[next(iter(self._lives))]
        if life == before:
            return ""
        why = ended or "it was stopped"
        return f"'{server_id}' was started anew since your last call: {why}. What it held in memory is gone."

    async def _news(self, server_id: str) -> str:
        """What to say of a server that has told, in the middle of a call, that its tools have changed."""
        if self._waiting is None or not (count := await self._waiting(server_id)):
            return ""
        how = self._worded(LOOK_AT).format(command=f"toolscout review {shlex.quote(server_id)}")
        tools = "1 tool" if count == 1 else f"{count} tools"
        return f"{tools} of '{server_id}', new or changed, may be called once the user has approved them. {how}"

    def _sandbox_hint(self, tool: Tool, sent: JsonObject, failure: JsonObject | UpstreamError) -> str:
        """What a person opens in the server's sandbox, where a call seems to have failed for want of it."""
        config = self._pool.config(tool.server_id)
        policy = config.policy(self._settings.sandbox) if config is not None else None
        if config is None or policy is None:
            return ""
        from toolscout.server.sandbox.hint import call_hint, failed_words

        said = str(failure) if isinstance(failure, UpstreamError) else failed_words(failure)
        return call_hint(config, policy, said, sent, reads=bool(tool.read_only)) if said else ""

    async def _offer(
        self, tool: Tool, server: Server | None, absence: ToolscoutError | None, asking: Asking | None
    ) -> Offer | None:
        """What the person can be asked about a server that is absent. Raises ``absence`` where there is nothing."""
        if absence is None:
            return None
        if asking is None or self._installer is None or server is None or server.state not in _OFFERED:
            raise absence
        if self._pool.configured(tool.server_id):
            raise absence  # switched off, which a person has done: it is not missing
        offer = await self._installer.offer(server, tool)
        if offer is None:
            raise absence
        return offer

    def _installed(self, tool_id: str) -> Tool:
        """The tool as its server, just installed, lists it. Raises ToolscoutError where it is not what was offered."""
        tool = self._find_tool(tool_id)
        if tool is None:
            server_id = tool_id.rpartition("/")[0]
            raise NotFound(
                f"'{server_id}' is installed now, but it has no tool '{tool_id}': the catalog was out of date.",
                hint="Use find_tools to see what it has.",
            )
        self._check_review(tool, self._server_of(tool.server_id))
        return tool

    def _still(self, tool_id: str) -> Tool:
        """The tool as it is now. Raises ToolscoutError where it is gone, or may not be called any more."""
        tool = self._tool(tool_id)
        server = self._server_of(tool.server_id)
        self._check_review(tool, server)
        if (absence := self._absence(tool, server)) is not None:
            raise absence  # its entry was changed after the call came in
        return tool

    async def _admit(self, tool_id: str) -> None:
        if self._look is not None:
            await self._look(tool_id)
        self._still(tool_id)

    def refusal(self, tool_id: str) -> ToolscoutError | None:
        """Why a call of the tool would be refused whatever its arguments are, or None."""
        try:
            tool = self._tool(tool_id)
            server = self._server_of(tool.server_id)
            self._check_review(tool, server)
        except ToolscoutError as error:
            return error
        return self._absence(tool, server)

    def _tool(self, tool_id: object) -> Tool:
        if not isinstance(tool_id, str) or not tool_id.strip():
            raise InvalidArguments(
                "'tool_id' is missing.", hint="Give a tool_id from find_tools, in the form server/tool."
            )
        tool = self._find_tool(tool_id)
        if tool is not None:
            return tool
        name = tool_id.rpartition("/")[0]
        if name and self._server_of(name) is None and self._pool.configured(name):
            raise NotFound(
                f"The server '{name}' is configured, but its tools could not be listed, so '{tool_id}' is not known.",
                hint=f"A person can see why: toolscout refresh {shlex.quote(name)}",
            )
        near = [t for t in self._suggest_ids(tool_id) if t != tool_id][:_SUGGESTED]
        hint = f"Nearest: {', '.join(map(self._signed, near))}." if near else ""
        raise NotFound(f"There is no tool '{tool_id}'.", hint=f"{hint} {self._worded(LOOK)}".strip())

    def _bare(self, tool_id: str) -> str:
        """The id without the signature that small models copy along with it, as answers show the two together."""
        if not isinstance(tool_id, str) or "(" not in tool_id or self._find_tool(tool_id) is not None:
            return tool_id
        bare = tool_id.partition("(")[0].strip()
        return tool_id if self._find_tool(bare) is None else bare

    def _signed(self, tool_id: str) -> str:
        """The id with the tool's signature, so that the next call can be the right one."""
        signature = self._signature_of(tool_id)
        return tool_id if signature is None else f"{tool_id}({signature})"

    def _check_review(self, tool: Tool, server: Server | None) -> None:
        """Refuse what must not be called, saying what a person has to do."""
        quarantined = server is not None and server.state is ServerState.QUARANTINED
        if tool.review is Review.APPROVED and not quarantined:
            return
        what = "has changed since it was approved and is" if tool.review is Review.CHANGED else "is"
        if tool.review is Review.CHANGED and self._look_again is not None and self._pool.configured(tool.server_id):
            self._look_again(tool.server_id)
        if tool.review is Review.BLOCKED:
            raise NotAllowed(
                f"The tool '{tool.tool_id}' is blocked here.",
                hint="A person can see why: toolscout review.",
                kind="blocked",
            )
        hint = self._worded(LOOK_AT).format(command=f"toolscout review {shlex.quote(tool.server_id)}")
        if tool.review is Review.CHANGED:
            hint += f". {_VOLATILE}"
        raise NotAllowed(
            f"The tool '{tool.tool_id}' {what} quarantined: a person has to approve it before it may be called.",
            hint=hint,
            kind="quarantined",
        )

    def _absence(self, tool: Tool, server: Server | None) -> ToolscoutError | None:
        """Why a tool that may be called can't be, and what a person has to do; None if it can be tried.

        The states are what was true at the last check: an upstream that is configured is tried, and says itself what is
        wrong now. Whether it is configured counts at each call, also while a process of it lives.
        """
        if (config := self._pool.config(tool.server_id)) is not None:
            return self._switched_off(tool.server_id) if config.disabled else None
        state = server.state if server is not None else ServerState.NEEDS_INSTALL
        if state is ServerState.NEEDS_KEY and server is not None:
            needed = [v for v in server.install.env if v.required or v.secret]
            names = _names(needed or server.install.env)
            return NotAllowed(
                f"The server '{tool.server_id}' needs {', '.join(names) or 'a key'} before its tools can be called.",
                hint=f"{_variables(server.install)} {how_to_add(server)}".strip(),
                kind="needs_key",
            )
        if state is ServerState.UNAVAILABLE:
            checked = f" (last tried {server.checked_at})" if server is not None and server.checked_at else ""
            hint = self._worded(LOOK_READY)
            if server is not None and (command := install_command(server)):
                hint += f" Or a person can try it; it is started with: {command}. {how_to_add(server)}"
            return NotAllowed(
                f"The server '{tool.server_id}' is not available{checked}.", hint=hint, kind="unavailable"
            )
        return _not_installed(tool.server_id, server)

    def _switched_off(self, server_id: str) -> NotAllowed:
        return NotAllowed(
            f"The server '{server_id}' is switched off: its entry in mcp.json says \"disabled\".",
            hint=f"{self._worded(LOOK_READY)} Or a person can type: toolscout enable {shlex.quote(server_id)}",
            kind="unavailable",
        )

    def _into(self, said: str, tool: Tool) -> str:
        return (said + self._worded(LOOK_INTO)).format(server_id=tool.server_id)

    def _dry_run(self, tool: Tool, arguments: JsonObject, passage: Passage | None) -> JsonObject:
        report: JsonObject = {
            "dry_run": True,
            "valid": True,
            "tool_id": tool.tool_id,
            "request": {"method": "tools/call", "params": {"name": tool.name, "arguments": arguments}},
        }
        if (trouble := schema_trouble(tool.input_schema, key=tool.fingerprint or None)) is not None:
            report["note"] = trouble
        if passage is not None:
            report["policy"] = passage.shown()
        text = "Nothing was sent. The arguments are valid; this would be sent:\n"
        return {
            "content": [{"type": "text", "text": text + json.dumps(report["request"], ensure_ascii=False)}],
            "structuredContent": report,
            "isError": False,
        }


def _ourselves() -> ClientIdentity:
    from toolscout.server.client_identity import OURSELVES

    return OURSELVES


def _noted(passage: Passage | None, outcome: str, result: JsonObject) -> JsonObject:
    if passage is not None:
        passage.note(outcome)
    if result.get("isError") and (watched := current_call()) is not None:
        watched.error = outcome
    return result


def _usage(tool: Tool) -> str:
    return (
        f"Signature: {tool.name}({compact_signature(tool)})\nInput schema: {bounded_schema(tool.input_schema)}\n"
        "Correct the arguments and call again with the same tool_id."
    )


def _not_installed(server_id: str, server: Server | None) -> NotFound:
    parts = []
    if server is not None:
        if command := install_command(server):
            parts.append(f"It is started with: {command}.")
        parts += [_variables(server.install), how_to_add(server)]
    else:
        parts.append(f"A person can add it: toolscout add {shlex.quote(server_id)}")
    return NotFound(
        f"The server '{server_id}' is known but not installed here, so its tools can't be called.",
        hint=" ".join(p for p in parts if p),
        kind="not_installed",
    )


def _variables(install: Install) -> str:
    needed = _names(v for v in install.env if v.required or v.secret)
    return f"Set these variables first: {', '.join(needed)}." if needed else ""


def _names(variables: Iterable[EnvVar]) -> list[str]:
    """Names alone, and only what is one: descriptions are texts of strangers, whom the agent would read."""
    return [v.name for v in variables if _VARIABLE.fullmatch(v.name)]


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise InvalidArguments("'timeout_s' must be a positive number of seconds.")
    return min(float(value), _LONGEST_TIMEOUT)


def _says_what_it_can(relayed: Relayed) -> bool:
    return _CAPABILITIES in (relayed.get("meta") or {})


def _failure(error: ToolscoutError, passage: Passage | None, usage: str = "") -> JsonObject:
    """An error as a result; what an upstream has said in it is held to the policy."""
    if passage is not None and isinstance(error, UpstreamError):
        return passage.finish_error(error, usage)
    return _error("\n".join(part for part in (error.sentence(), usage) if part))


def _text(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}]}


def _remarked(result: JsonObject, *remarks: str) -> JsonObject:
    """The result with remarks of Toolscout's own at its end."""
    said = [{"type": "text", "text": f"[Toolscout: {remark}]"} for remark in remarks if remark]
    if not said:
        return result
    # Clients that read no structured content would see the remarks alone.
    own = result["content"]
    if not own and "structuredContent" in result:
        own = _text(json.dumps(result["structuredContent"], ensure_ascii=False))["content"]
    return {**result, "content": [*own, *said]}


def _error(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}], "isError": True}
