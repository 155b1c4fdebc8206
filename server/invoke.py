"""``invoke``: check a call, make it, relay the result as it came; every failure is a text a model can act on."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from toolscout.errors import InvalidArguments, NotAllowed, NotFound, ToolscoutError, UpstreamError
from toolscout.records import Install, JsonObject, Review, Server, ServerState, Tool
from toolscout.server.pool import UpstreamPool, as_result, complete
from toolscout.server.upstream import Refused
from toolscout.settings import Settings
from toolscout.validation import bounded_schema, explain, schema_trouble, unwrap_envelope, validate

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from toolscout.server.link import Relayed

_LONGEST_TIMEOUT = 3600.0
_INVALID_PARAMS = -32602
_SUGGESTED = 5


class Invoker:
    """Makes calls by tool id.

    ``find_tool`` and ``server_of`` look up records, ``suggest_ids`` gives the ids nearest to a wrong one.
    """

    def __init__(
        self,
        find_tool: Callable[[str], Tool | None],
        server_of: Callable[[str], Server | None],
        suggest_ids: Callable[[str], list[str]],
        pool: UpstreamPool,
        settings: Settings,
    ) -> None:
        self._find_tool = find_tool
        self._server_of = server_of
        self._suggest_ids = suggest_ids
        self._pool = pool
        self._settings = settings

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
        **relayed: Unpack[Relayed],
    ) -> JsonObject:
        """As :meth:`invoke`, with the result in wire form: what the upstream sent is not parsed and made anew."""
        try:
            tool = self._tool(tool_id)
            server = self._server_of(tool.server_id)
            # Before the arguments are looked at: what is said of those shows the tool's own words.
            self._check_state(tool, server)
            sent = unwrap_envelope(tool_id, arguments, tool.input_schema)
            if problems := validate(sent, tool.input_schema, key=tool.fingerprint or None):
                return _error(explain(problems, tool))
            timeout = _seconds(timeout_s)
            if dry_run:
                return self._dry_run(tool, sent)
            try:
                result = await self._pool.call_raw(tool.server_id, tool.name, sent, timeout=timeout, **relayed)
                # Checked, not rebuilt: the client would get a bare protocol error for what is no tool result.
                as_result(tool.server_id, tool.name, result)
                return complete(result)
            except Refused as error:
                if error.code == _INVALID_PARAMS:
                    return _error(f"{error.sentence()}\n{_usage(tool)}")
                raise
            except NotFound:
                raise _not_installed(tool.server_id, server) from None
        except InvalidArguments as error:
            found = self._find_tool(tool_id) if isinstance(tool_id, str) else None
            return _error(f"{error.sentence()}\n{_usage(found)}" if found else error.sentence())
        except ToolscoutError as error:
            return _error(error.sentence())

    def refusal(self, tool_id: str) -> ToolscoutError | None:
        """Why a call of the tool would be refused whatever its arguments are, or None."""
        try:
            tool = self._tool(tool_id)
            self._check_state(tool, self._server_of(tool.server_id))
        except ToolscoutError as error:
            return error
        return None

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
        hint = f"Nearest: {', '.join(near)}." if near else ""
        raise NotFound(
            f"There is no tool '{tool_id}'.", hint=f"{hint} Use find_tools to look for the right one.".strip()
        )

    def _check_state(self, tool: Tool, server: Server | None) -> None:
        """Refuse what must not or can't be called, saying what a person has to do.

        Only quarantine is final here. The other states are what was true at the last check: an upstream that is
        configured is tried, and says itself what is wrong now.
        """
        state = server.state if server is not None else ServerState.READY
        if tool.review is not Review.APPROVED or state is ServerState.QUARANTINED:
            what = "has changed since it was approved and is" if tool.review is Review.CHANGED else "is"
            if tool.review is Review.BLOCKED:
                raise NotAllowed(
                    f"The tool '{tool.tool_id}' is blocked here.", hint="A person can see why: toolscout review."
                )
            raise NotAllowed(
                f"The tool '{tool.tool_id}' {what} quarantined: a person has to approve it before it may be called.",
                hint=f"Ask them to run: toolscout review {shlex.quote(tool.server_id)}",
            )
        if state is ServerState.READY or self._pool.configured(tool.server_id):
            return
        if state is ServerState.NEEDS_KEY and server is not None:
            names = [v.name for v in server.install.env if v.required or v.secret] or [
                v.name for v in server.install.env
            ]
            raise NotAllowed(
                f"The server '{tool.server_id}' needs {', '.join(names) or 'a key'} before its tools can be called.",
                hint=f"{_variables(server.install)} Then add it: toolscout add {shlex.quote(tool.server_id)}".strip(),
            )
        if state is ServerState.UNAVAILABLE:
            checked = f" (last tried {server.checked_at})" if server is not None and server.checked_at else ""
            hint = "Use find_tools (ready_only) for another one."
            if server is not None and (command := install_command(server.install)):
                hint += f" Or a person can try to add it ({command}): toolscout add {shlex.quote(tool.server_id)}"
            raise NotAllowed(f"The server '{tool.server_id}' is not available{checked}.", hint=hint)
        raise _not_installed(tool.server_id, server)

    def _dry_run(self, tool: Tool, arguments: JsonObject) -> JsonObject:
        report: JsonObject = {
            "dry_run": True,
            "valid": True,
            "tool_id": tool.tool_id,
            "request": {"method": "tools/call", "params": {"name": tool.name, "arguments": arguments}},
        }
        if (trouble := schema_trouble(tool.input_schema, key=tool.fingerprint or None)) is not None:
            report["note"] = trouble
        text = "Nothing was sent. The arguments are valid; this would be sent:\n"
        return {
            "content": [{"type": "text", "text": text + json.dumps(report["request"], ensure_ascii=False)}],
            "structuredContent": report,
            "isError": False,
        }


def _usage(tool: Tool) -> str:
    from toolscout.signature import compact_signature

    return (
        f"Signature: {tool.name}({compact_signature(tool)})\nInput schema: {bounded_schema(tool.input_schema)}\n"
        "Correct the arguments and call again with the same tool_id."
    )


def _not_installed(server_id: str, server: Server | None) -> NotFound:
    parts = []
    if server is not None:
        if command := install_command(server.install):
            parts.append(f"It is started with: {command}.")
        parts.append(_variables(server.install))
    parts.append(f"A person can add it: toolscout add {shlex.quote(server_id)}")
    return NotFound(
        f"The server '{server_id}' is known but not installed here, so its tools can't be called.",
        hint=" ".join(p for p in parts if p),
    )


def install_command(install: Install) -> str:
    """The command line that starts a server, or its URL; empty when unknown."""
    if install.url:
        return install.url
    if install.command:
        return shlex.join([install.command, *install.args])
    if not install.package:
        return ""
    at = f"{install.package}@{install.version}" if install.version else install.package
    return {"npm": f"npx -y {at}", "pypi": f"uvx {at}", "oci": f"docker run -i --rm {install.package}"}.get(
        install.registry, ""
    )


def _variables(install: Install) -> str:
    needed = [v for v in install.env if v.required or v.secret]
    if not needed:
        return ""
    shown = [f"{v.name} ({v.description})" if v.description else v.name for v in needed]
    return f"Set these variables first: {', '.join(shown)}."


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise InvalidArguments("'timeout_s' must be a positive number of seconds.")
    return min(float(value), _LONGEST_TIMEOUT)


def _error(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}], "isError": True}
