"""One agent on one request, in one of three arms. The loop is Pydantic AI's, its tools are chosen here.

- ``all``: every tool of the configured servers is in the prompt.
- ``find``: find_tools and invoke of a real ``toolscout serve``.
- ``bootstrap``: as ``find``, after suggest_call has written a first call for the whole request; it is made, and
  call and result stand in the conversation before the model's first turn (MCP-Flow, section 4.4).
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolscout.errors import BadInput, ModelError, NotAllowed, UpstreamError
from toolscout.eval.agent.written_calls import reading
from toolscout.records import JsonObject
from toolscout.server.contract import INSTRUCTIONS as OF_TOOLSCOUT
from toolscout.server.contract import SUGGESTS

if TYPE_CHECKING:
    from toolscout.server.config import UpstreamConfig

ARMS = ("all", "find", "bootstrap")
ANSWERS = ("text", "tool")
_TASK = "Do what the user asks with the tools you have. Do it for real, and look before you change something. "
_SHORT = "as short as it can be (a number, a few words, a list with commas)"
INSTRUCTIONS = {
    "text": f"{_TASK}When it is done, or cannot be done, end with one line that begins with ANSWER: and gives the "
    f"answer alone, {_SHORT}; where nothing was asked, write ANSWER: done.",
    "tool": f"{_TASK}Each turn is one call of a tool. When it is done, or cannot be done, call final_answer with the "
    f"answer alone, {_SHORT}; where nothing was asked, with done.",
}
_START_SECONDS = 120.0
_FATAL = (401, 403, 404)
_SHOWN = 300


@dataclass(frozen=True)
class Mind:
    """The model that acts: an OpenAI-compatible endpoint. ``turns``: most requests to it for one task."""

    url: str
    model: str
    key: str = ""
    turns: int = 20
    seconds: float = 300.0
    temperature: float | None = 0.0
    answers: str = "text"
    """``text``: it ends with a line ``ANSWER:``. ``tool``: it ends by calling a tool with the answer, so that each turn
    has to be a call, and an endpoint that constrains calls makes a small model write valid ones."""
    max_tokens: int | None = None

    @property
    def instructions(self) -> str:
        """What it is told before the task."""
        return INSTRUCTIONS[self.answers]


@dataclass
class Made:
    """One tool call as it was made. ``tool``: the id of the tool that did it (``server/tool``, or Toolscout's own).

    ``args``: its arguments as JSON, cut after 300 characters; ``said``: its error, cut likewise.
    """

    tool: str
    ok: bool = True
    seconds: float = 0.0
    said: str = ""
    args: str = ""


@dataclass
class Doing:
    """What an agent did with one request. ``stopped`` is why it did not come to an end of its own, if so."""

    answer: str = ""
    calls: list[Made] = field(default_factory=list)
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    stopped: str = ""
    detail: str = ""
    bootstrap: str = ""
    """``made``, ``failed``, ``not ready`` or ``abstained``; empty in the other arms."""


def need_library() -> None:
    """Raises NotAllowed where the agent library is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("pydantic_ai", "openai")):
        raise NotAllowed("The agent library is not installed.", "Install it with: pip install 'toolscout[agent]'")


async def act(
    request: str,
    arm: str,
    mind: Mind,
    entries: Mapping[str, UpstreamConfig],
    home: Path,
    environment: Mapping[str, str],
    log: Path,
) -> Doing:
    """Let the model work on one request; servers and Toolscout are started for it and ended after it.

    ``environment`` is that of ``toolscout serve``, whose home is ``home``. Raises UpstreamError for a server that does
    not start, ModelError for an endpoint that cannot be used at all: both are no fault of the agent's.
    """
    from pydantic_ai.toolsets import AbstractToolset

    doing = Doing()
    async with AsyncExitStack() as stack:
        toolsets: list[AbstractToolset[Any]] = []
        history: list[Any] = []
        told = mind.instructions
        began = time.perf_counter()
        # Clients show a server's instructions to their model: the servers' own in the first arm, Toolscout's in the
        # others, less the sentence on the tool that these arms have not.
        if arm == "all":
            for name, config in entries.items():
                client = await _reached(stack, name, config, log)
                toolsets.append(_toolset(client, doing, name, mind.turns).prefixed(name))
        elif arm in ARMS:
            client = await _entered(stack, "toolscout", _toolscout(home, environment, log))
            told = f"{told}\n\n{OF_TOOLSCOUT.replace(SUGGESTS, '')}"
            tools = _toolset(client, doing, "", mind.turns)
            toolsets.append(tools.filtered(lambda _, tool: tool.name in ("find_tools", "invoke")))
            began = time.perf_counter()
            if arm == "bootstrap":
                history = await _bootstrap(client, request, doing, mind, told)
        else:
            raise BadInput(f"There is no arm {arm!r}.", f"Arms are {', '.join(ARMS)}.")
        began = began if history or doing.bootstrap else time.perf_counter()
        await _loop(request, told, toolsets, history, mind, doing, mind.seconds - (time.perf_counter() - began))
        doing.seconds = round(time.perf_counter() - began, 3)
    return doing


async def _loop(
    request: str,
    told: str,
    toolsets: Sequence[Any],
    history: Sequence[Any],
    mind: Mind,
    doing: Doing,
    seconds: float,
) -> None:
    from pydantic_ai import Agent, ToolOutput
    from pydantic_ai.exceptions import (
        AgentRunError,
        ModelAPIError,
        ModelHTTPError,
        UnexpectedModelBehavior,
        UsageLimitExceeded,
    )
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RunUsage, UsageLimits

    model = reading(OpenAIChatModel(mind.model, provider=OpenAIProvider(base_url=mind.url, api_key=mind.key or "none")))
    settings = ModelSettings(timeout=mind.seconds)
    if mind.temperature is not None:
        settings["temperature"] = mind.temperature
    if mind.max_tokens is not None:
        settings["max_tokens"] = mind.max_tokens
    ends = ToolOutput(str, name="final_answer", description="End the task with this answer.")
    agent: Any = Agent(
        model, instructions=told, toolsets=list(toolsets), retries=mind.turns, model_settings=settings,
        output_type=ends if mind.answers == "tool" else str,
    )  # fmt: skip
    usage = RunUsage()
    limits = UsageLimits(request_limit=mind.turns)
    try:
        async with asyncio.timeout(max(1.0, seconds)):
            given = {"message_history": list(history)} if history else {"user_prompt": request}
            result = await agent.run(**given, usage=usage, usage_limits=limits)
        doing.answer = str(result.output)
    except TimeoutError:
        doing.stopped = "time"
    except UsageLimitExceeded as error:
        doing.stopped, doing.detail = "turns", str(error)[:_SHOWN]
    except ModelHTTPError as error:
        if error.status_code in _FATAL or error.status_code == 429 or error.status_code >= 500:
            hint = "Check address, model and key." if error.status_code in _FATAL else "Run the command again to go on."
            raise ModelError(f"{mind.url} answered {error.status_code}: {str(error)[:_SHOWN]}.", hint) from None
        if "tool-call-parser" in str(error):
            raise ModelError(
                f"{mind.url} was not started for tool calls.",
                "vLLM wants --enable-auto-tool-choice and --tool-call-parser (hermes for Qwen2.5), "
                "after -- with `toolscout model serve`.",
            ) from None
        doing.stopped, doing.detail = "refused", str(error)[:_SHOWN]
    except ModelAPIError as error:
        raise ModelError(
            f"{mind.url} cannot be used: {str(error)[:_SHOWN]}.", "Run the command again to go on."
        ) from None
    except (UnexpectedModelBehavior, AgentRunError) as error:
        doing.stopped, doing.detail = "confused", str(error)[:_SHOWN]
    finally:
        doing.turns = usage.requests
        doing.prompt_tokens, doing.completion_tokens = usage.input_tokens, usage.output_tokens


def _toolset(client: Any, doing: Doing, server: str, turns: int) -> Any:
    """A server's tools; each call is noted, and a tool's error goes to the model as its result."""
    from pydantic_ai.mcp import MCPToolset

    async def noted(_: Any, call: Any, name: str, args: dict[str, Any]) -> Any:
        made = Made(_tool_id(server, name, args), args=_written(args))
        doing.calls.append(made)
        began = time.perf_counter()
        try:
            result = await call(name, args)
        except Exception as error:
            made.ok, made.said = False, str(error)[:_SHOWN]
            raise
        finally:
            made.seconds = round(time.perf_counter() - began, 3)
        return result

    return MCPToolset(
        client, tool_error_behavior="failed", process_tool_call=noted, max_retries=turns,
        include_instructions=bool(server),
    )  # fmt: skip


def _tool_id(server: str, name: str, args: Mapping[str, Any]) -> str:
    """What was called: behind invoke the tool that it calls."""
    if server:
        return f"{server}/{name}"
    return str(args.get("tool_id") or "toolscout/invoke") if name == "invoke" else f"toolscout/{name}"


def _written(args: Mapping[str, Any]) -> str:
    return json.dumps(args, ensure_ascii=False).encode("utf-8", "replace").decode()[:_SHOWN]


async def _bootstrap(client: Any, request: str, doing: Doing, mind: Mind, words: str) -> list[Any]:
    """Ask suggest_call for a first call and make it; the conversation so far, empty where no call was ready."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart

    suggested = await _made(client, doing, "suggest_call", {"task": request}, mind.seconds)
    answer = (suggested.structured_content or {}) if suggested is not None else {}
    calls = answer.get("calls") or []
    if suggested is None or suggested.is_error or not calls or answer.get("abstained"):
        doing.bootstrap = "failed" if suggested is None or suggested.is_error else "abstained"
        return []
    if not calls[0].get("ready"):
        doing.bootstrap = "not ready"
        return []
    call: JsonObject = {"tool_id": calls[0]["tool_id"], "arguments": calls[0]["arguments"]}
    result = await _made(client, doing, "invoke", call, mind.seconds)
    doing.bootstrap = "made" if result is not None and not result.is_error else "failed"
    told = "The call took too long." if result is None else _text(result)
    return [
        ModelRequest(parts=[UserPromptPart(request)], instructions=words),
        ModelResponse(parts=[ToolCallPart("invoke", call, tool_call_id="bootstrap_1")]),
        ModelRequest(parts=[ToolReturnPart("invoke", told, tool_call_id="bootstrap_1")], instructions=words),
    ]


async def _made(client: Any, doing: Doing, name: str, args: JsonObject, seconds: float) -> Any:
    """A call of the bootstrap's; None if it took too long."""
    made = Made(_tool_id("", name, args), args=_written(args))
    doing.calls.append(made)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            result = await client.call_tool(name, args, raise_on_error=False)
        made.ok = not result.is_error
        made.said = _text(result)[:_SHOWN] if result.is_error else ""
    except TimeoutError:
        result, made.ok, made.said = None, False, "it took too long"
    made.seconds = round(time.perf_counter() - began, 3)
    return result


def _text(result: Any) -> str:
    parts = [str(block.text) for block in result.content if getattr(block, "text", None)]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return "\n".join(parts) or "(no text)"


async def _entered(stack: AsyncExitStack, name: str, client: Any) -> Any:
    try:
        async with asyncio.timeout(_START_SECONDS):
            return await stack.enter_async_context(client)
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise UpstreamError(f"The server {name} does not start: {str(error) or type(error).__name__}.") from None


async def _reached(stack: AsyncExitStack, name: str, config: UpstreamConfig, log: Path) -> Any:
    """A connected client; servers that end on the newer protocol's first request are greeted by the older one's."""
    try:
        return await _entered(stack, name, _direct(config, log, "auto"))
    except UpstreamError:
        return await _entered(stack, name, _direct(config, log, "legacy"))


def _direct(config: UpstreamConfig, log: Path, mode: Literal["auto", "legacy"]) -> Any:
    """A client of one upstream, without Toolscout between."""
    from fastmcp import Client
    from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport

    from toolscout.records import Transport
    from toolscout.server.secrecy.secrets import Resolver

    whole = config.resolved(Resolver())
    transport: Any
    if whole.transport is Transport.STDIO:
        transport = StdioTransport(
            whole.command, list(whole.args), env=dict(whole.env) or None, cwd=whole.cwd, keep_alive=False, log_file=log
        )
    else:
        kind = SSETransport if whole.transport is Transport.SSE else StreamableHttpTransport
        transport = kind(whole.url, headers=dict(whole.headers), auth=whole.auth)
    return Client(transport, mode=mode, init_timeout=_START_SECONDS)


def _toolscout(home: Path, environment: Mapping[str, str], log: Path) -> Any:
    """A client that starts the server as a program of its own, over stdio, as Claude or Cursor would."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    env = {**environment, "TOOLSCOUT_HOME": str(home), "TOOLSCOUT_STARTER": "0", "TOOLSCOUT_INSTALL_OFFERS": "0"}
    line = ["-P", "-m", "toolscout", "serve"]
    return Client(
        StdioTransport(sys.executable, line, env=env, keep_alive=False, log_file=log), init_timeout=_START_SECONDS
    )
