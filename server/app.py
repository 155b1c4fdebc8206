"""The MCP server object: FastMCP for transports, eras and authentication, our own handlers for the three tools.

The handlers are registered at FastMCP's protocol layer, not as FastMCP tools. Its tool machinery would parse and
validate each call a second time and rebuild each result, which costs more than a warm upstream call does, and
`invoke` must relay results as they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import mcp_types
from fastmcp import FastMCP
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolscout import __version__
from toolscout.errors import ToolscoutError
from toolscout.server import contract
from toolscout.server.seal import HomeSeal
from toolscout.server.upstreams.errors import Refused
from toolscout.server.upstreams.owner import OWNER
from toolscout.server.wire import error_result, json_result, text_result
from toolscout.validation import ARGUMENT_KEYS, validate

if TYPE_CHECKING:
    from fastmcp.server.auth import AuthProvider
    from mcp.server.context import ServerRequestContext
    from mcp.shared.dispatcher import ProgressFnT

    from toolscout.server.asking import Asking
    from toolscout.server.client_identity import ClientIdentity
    from toolscout.server.engine import Engine
    from toolscout.server.telling.telemetry import Call

logger = logging.getLogger(__name__)

# Registered by FastMCP for every server; Toolscout has none of these to offer, so it does not claim them.
_UNUSED_METHODS = ("prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read")

_LIST_WAITS_SECONDS = 2.5
_LIST_TTL_MS = 60_000  # only the sentence on what stands behind the search ever changes

_FIRST_WITH_FORMS = "2025-06-18"
_ANSWER_SECONDS = 600.0  # as long as FastMCP lets the stateless era take

_INPUTS = {"find_tools": contract.FIND_INPUT, "suggest_call": contract.SUGGEST_INPUT, "invoke": contract.INVOKE_INPUT}


_EMPTY: dict[str, Any] = {"string": "", "array": []}

_UNKNOWN = "unknown"
"""What metrics, spans and log lines call a tool that is not one of ours."""


class App:
    """One engine behind one FastMCP server. ``local``: its clients run on this machine, as the same user."""

    def __init__(self, engine: Engine, *, auth: AuthProvider | None = None, local: bool = True) -> None:
        self.engine = engine
        offers = engine.settings.install_offers
        self._offers = local if offers is None else offers
        self.fastmcp: FastMCP[Any] = FastMCP(
            contract.NAME,
            version=__version__,
            instructions=contract.INSTRUCTIONS,
            auth=auth,
            request_state_security=RequestStateSecurity(codec=HomeSeal(engine.settings.home)),
        )
        self.lowlevel = self.fastmcp._mcp_server
        self.lowlevel.title = contract.TITLE
        for method in _UNUSED_METHODS:
            self.lowlevel._request_handlers.pop(method, None)
        self.lowlevel.add_request_handler("tools/list", mcp_types.PaginatedRequestParams, self._list_tools)
        self.lowlevel.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self._call_tool)

    async def _list_tools(self, ctx: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
        # Opening the index is quick, and what stands behind the search is what an agent picks a search tool by.
        with contextlib.suppress(TimeoutError, ToolscoutError):
            await asyncio.wait_for(self.engine.loaded(), _LIST_WAITS_SECONDS)
        tools = contract.tool_definitions(self.engine.behind)
        return {"tools": tools, "resultType": "complete", "ttlMs": _LIST_TTL_MS, "cacheScope": "public"}

    async def _call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: mcp_types.CallToolRequestParams
    ) -> dict[str, Any]:
        if params.name not in _INPUTS:
            # Told as what it is: the name itself is the client's own text.
            with self.engine.telemetry.tool_call(_UNKNOWN, ctx) as call:
                call.error = "unknown_tool"
                return text_result(self._unknown_tool(params.name), is_error=True)
        with self.engine.telemetry.tool_call(params.name, ctx) as call:
            result = await self._dispatch(ctx, params, call)
            if result.get("isError"):
                call.error = call.error or "tool_error"
            return result

    async def _dispatch(
        self, ctx: ServerRequestContext[Any, Any], params: mcp_types.CallToolRequestParams, call: Call
    ) -> dict[str, Any]:
        arguments = _said(params.arguments or {}, _INPUTS[params.name])
        if params.name == "invoke":
            arguments = _renamed(arguments)
        if problems := validate(arguments, _INPUTS[params.name], key=f"toolscout:{params.name}"):
            schema = json.dumps(_INPUTS[params.name], separators=(",", ":"))
            wrong = "\n".join(problem.line() for problem in problems)
            if params.name == "invoke" and any(name not in contract.INVOKE_INPUT["properties"] for name in arguments):
                wrong += "\nThe tool's own arguments go inside 'arguments'."
            call.error = "invalid_arguments"
            if params.name == "invoke":
                given = arguments.get("arguments")
                self.engine.governor.turned_away(arguments.get("tool_id"), given, partial(_identity, ctx), call.error)
            return text_result(f"{params.name} was not called.\n{wrong}\nIts input schema: {schema}", is_error=True)
        try:
            if params.name != "invoke":
                self.engine.governor.admit_search(params.name, partial(_identity, ctx))
            if params.name == "find_tools":
                return json_result(await self.engine.find_tools(**arguments, widen=True))
            if params.name == "suggest_call":
                return json_result(await self.engine.suggest_call(**arguments))
            return await self._invoke(ctx, params, arguments)
        except ToolscoutError as error:
            call.error = error.kind
            return error_result(error)
        except (asyncio.CancelledError, MCPError):
            raise
        except Exception as error:
            call.error = "internal"
            logger.exception("%s failed", params.name)
            return text_result(f"Toolscout failed inside {params.name}: {type(error).__name__}.", is_error=True)

    async def _invoke(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: mcp_types.CallToolRequestParams,
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        if ctx.request is not None and not self.engine.settings.share_upstreams:
            from toolscout.server.web.clients import owner_of

            OWNER.set(owner_of(ctx.request))
        on_progress: ProgressFnT | None = None
        if ctx.meta and ctx.meta.get("progress_token") is not None:
            on_progress = ctx.session.report_progress
        try:
            result = await self.engine.invoke_raw(
                arguments["tool_id"],
                arguments.get("arguments", {}),
                timeout_s=arguments.get("timeout_s"),
                dry_run=arguments.get("dry_run", False),
                on_progress=on_progress,
                input_responses=params.input_responses,
                request_state=params.request_state,
                meta=_capabilities(ctx),
                asking=_asking(ctx, self._offers),
                client=partial(_identity, ctx),
            )
        except Refused as error:
            raise MCPError(error.code, str(error), error.data) from error
        if result.setdefault("resultType", "complete") == "complete":
            return result if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else for_the_older_era(result)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return text_result(
                f"{arguments['tool_id']} asks the user for input before it goes on, which protocol "
                f"{ctx.protocol_version} cannot carry. Use a client that speaks {MODERN_PROTOCOL_VERSIONS[-1]}.",
                is_error=True,
            )
        return result

    def _unknown_tool(self, name: str) -> str:
        known = ", ".join(_INPUTS)
        if self.engine.knows(name):
            return f'{name} is reached through invoke: call invoke with {{"tool_id": "{name}", "arguments": {{...}}}}.'
        return f"There is no tool {name!r} here, only {known}. Use find_tools to find tools of other servers."


def _said(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The arguments without what says nothing: null, and an empty text or list where one is asked for.

    Models that are made to fill in every field (OpenAI's strict mode), and small ones, write ``"requests": []`` beside
    a query; refused, some repeat it until their turns are used up. Required arguments stay, and so does a switch that
    is no switch (``"dry_run": ""``): a call that was to be shown must not be made.
    """
    required, said = schema.get("required", ()), {}
    for name, value in arguments.items():
        of = schema["properties"].get(name)
        if of is not None and name not in required:
            items = of.get("items", {})
            if isinstance(value, list) and "properties" in items:
                value = [_said(item, items) if isinstance(item, dict) else item for item in value]
            elif isinstance(value, list):
                value = [item for item in value if item is not None and item != ""]
            kind = of.get("type")
            if value is None or (isinstance(kind, str) and _EMPTY.get(kind) == value):
                continue
        said[name] = value
    return said


def _renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """What models also call the tool's arguments, under its right name; dropped, a call would be made without them."""
    if "arguments" not in arguments:
        for alias in ARGUMENT_KEYS:
            if isinstance(arguments.get(alias), dict | str):
                return {("arguments" if k == alias else k): v for k, v in arguments.items()}
    return arguments


def for_the_older_era(result: dict[str, Any]) -> dict[str, Any]:
    """Before 2026-07-28 structured content had to be an object: anything else goes as text, where it is not yet."""
    value = result.get("structuredContent")
    if value is None or isinstance(value, dict):
        return result
    content = result["content"] or text_result(json.dumps(value, ensure_ascii=False))["content"]
    return {k: v for k, v in result.items() if k != "structuredContent"} | {"content": content}


def _capabilities(ctx: ServerRequestContext[Any, Any]) -> dict[str, Any] | None:
    """What the client can be asked for, handed on to the upstream; only the stateless era says it with each call."""
    meta = (ctx.params or {}).get("_meta")
    if not isinstance(meta, dict) or mcp_types.CLIENT_CAPABILITIES_META_KEY not in meta:
        return None
    return {mcp_types.CLIENT_CAPABILITIES_META_KEY: meta[mcp_types.CLIENT_CAPABILITIES_META_KEY]}


def _identity(ctx: ServerRequestContext[Any, Any]) -> ClientIdentity:
    from toolscout.server.client_identity import identity_of

    return identity_of(ctx)


def _asking(ctx: ServerRequestContext[Any, Any], installs: bool) -> Asking | None:
    """How the person behind the client can be asked; None if the client has not said that it shows forms.

    A client of the 2025 handshake is asked on its own connection, which plain HTTP requests without a session lack.
    """
    declared = ctx.session.client_capabilities
    elicitation = declared.elicitation if declared is not None else None
    # Before there were modes, all there was was the form: an empty declaration still means it.
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return None
    from toolscout.server.asking import Asking, CannotAsk

    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return Asking(installs=installs)
    if ctx.protocol_version < _FIRST_WITH_FORMS or not ctx.session.can_send_request:
        return None

    async def during(params: dict[str, Any]) -> object:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await ctx.session.elicit_form(params["message"], params["requestedSchema"], ctx.request_id)
        except TimeoutError:
            return None
        except (MCPError, ValidationError) as error:
            raise CannotAsk from error

    return Asking(during, installs)
