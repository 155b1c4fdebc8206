"""The upstream that the official conformance suite's tools live on: stdio, the SDK's low-level ``Server``.

The suite names the tools and says what each must answer; behind Toolscout they are called through ``invoke``.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

NAME = "fixture"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
NO_ARGUMENTS = {"type": "object", "properties": {}}
Answer = types.CallToolResult | types.InputRequiredResult
Behaviour = Callable[[Any, types.CallToolRequestParams], Awaitable[Answer]]
TOOLS: dict[str, Behaviour] = {}


def tool(behaviour: Behaviour) -> Behaviour:
    """Register a tool under its function's name."""
    TOOLS[behaviour.__name__] = behaviour
    return behaviour


def text(value: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)], is_error=is_error)


def form(message: str, **properties: dict[str, Any]) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(message: str) -> types.CreateMessageRequest:
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=message))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[said], max_tokens=100))


def ask(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def answers(params: types.CallToolRequestParams, *wanted: str) -> dict[str, Any] | None:
    """The client's answers if every wanted one is there: one that is missing is asked for again."""
    given = {
        key: value.model_dump(by_alias=True, mode="json") if hasattr(value, "model_dump") else value
        for key, value in (params.input_responses or {}).items()
    }
    return given if all(given.get(key) for key in wanted) else None


def sound() -> str:
    """A tenth of a second of silence as a WAV file, in base64."""
    file = io.BytesIO()
    with wave.open(file, "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(1)
        audio.setframerate(8000)
        audio.writeframes(b"\x80" * 800)
    return base64.b64encode(file.getvalue()).decode()


def embedded(uri: str, mime_type: str, content: str) -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=mime_type, text=content)
    return types.EmbeddedResource(type="resource", resource=resource)


# content


@tool
async def test_simple_text(context: Any, params: types.CallToolRequestParams) -> Answer:
    return text("This is a simple text response for testing.")


@tool
async def test_image_content(context: Any, params: types.CallToolRequestParams) -> Answer:
    return types.CallToolResult(content=[types.ImageContent(type="image", data=PNG, mime_type="image/png")])


@tool
async def test_audio_content(context: Any, params: types.CallToolRequestParams) -> Answer:
    return types.CallToolResult(content=[types.AudioContent(type="audio", data=sound(), mime_type="audio/wav")])


@tool
async def test_embedded_resource(context: Any, params: types.CallToolRequestParams) -> Answer:
    block = embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    return types.CallToolResult(content=[block])


@tool
async def test_multiple_content_types(context: Any, params: types.CallToolRequestParams) -> Answer:
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="Multiple content types test:"),
            types.ImageContent(type="image", data=PNG, mime_type="image/png"),
            embedded("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123})),
        ]
    )


@tool
async def test_error_handling(context: Any, params: types.CallToolRequestParams) -> Answer:
    return text("This tool intentionally returns an error for testing", is_error=True)


# during the call


@tool
async def test_tool_with_progress(context: Any, params: types.CallToolRequestParams) -> Answer:
    for progress in (0, 50, 100):
        await context.session.report_progress(progress, 100)
        await asyncio.sleep(0.05)
    return text("done")


async def test_logging(context: Any, params: types.CallToolRequestParams) -> Answer:
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", step, related_request_id=context.request_id)
        await asyncio.sleep(0.05)
    return text("done")


TOOLS["test_tool_with_logging"] = TOOLS["test_logging_tool"] = test_logging


# what the client is asked


def requires(**capabilities: Any) -> MCPError:
    data = {"requiredCapabilities": capabilities}
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "the client lacks what this tool needs", data)


def declared(context: Any) -> dict[str, Any]:
    return (context.meta or {}).get(types.CLIENT_CAPABILITIES_META_KEY) or {}


@tool
async def test_missing_capability(context: Any, params: types.CallToolRequestParams) -> Answer:
    if "sampling" not in declared(context):
        raise requires(sampling={})
    return text("the client can sample")


@tool
async def test_streaming_elicitation(context: Any, params: types.CallToolRequestParams) -> Answer:
    if answers(params, "user_name") is None:
        return ask(user_name=form("What is your name?", name={"type": "string"}))
    return text("done")


@tool
async def test_input_required_result_elicitation(context: Any, params: types.CallToolRequestParams) -> Answer:
    given = answers(params, "user_name")
    if given is None:
        return ask(user_name=form("What is your name?", name={"type": "string"}))
    return text(f"Hello, {given['user_name']['content']['name']}!")


@tool
async def test_input_required_result_sampling(context: Any, params: types.CallToolRequestParams) -> Answer:
    given = answers(params, "capital_question")
    if given is None:
        return ask(capital_question=sampling("What is the capital of France?"))
    return text(f"The client's model says: {given['capital_question']['content']['text']}")


@tool
async def test_input_required_result_list_roots(context: Any, params: types.CallToolRequestParams) -> Answer:
    given = answers(params, "client_roots")
    if given is None:
        return ask(client_roots=types.ListRootsRequest())
    return text(", ".join(root["uri"] for root in given["client_roots"]["roots"]))


@tool
async def test_input_required_result_request_state(context: Any, params: types.CallToolRequestParams) -> Answer:
    if answers(params, "confirm") is None:
        return ask("asked", confirm=form("Please confirm", ok={"type": "boolean"}))
    return text("state-ok" if params.request_state == "asked" else f"not our state: {params.request_state}")


@tool
async def test_input_required_result_tampered_state(context: Any, params: types.CallToolRequestParams) -> Answer:
    return await test_input_required_result_request_state(context, params)


@tool
async def test_input_required_result_multiple_inputs(context: Any, params: types.CallToolRequestParams) -> Answer:
    if answers(params, "user_name", "greeting", "client_roots") is None:
        return ask(
            "asked",
            user_name=form("What is your name?", name={"type": "string"}),
            greeting=sampling("Generate a greeting"),
            client_roots=types.ListRootsRequest(),
        )
    return text("done")


@tool
async def test_input_required_result_multi_round(context: Any, params: types.CallToolRequestParams) -> Answer:
    if params.request_state is None:
        return ask("round 1", step1=form("Step 1: What is your name?", name={"type": "string"}))
    if params.request_state == "round 1":
        return ask("round 2", step2=form("Step 2: What is your favorite color?", color={"type": "string"}))
    return text("done")


@tool
async def test_input_required_result_capabilities(context: Any, params: types.CallToolRequestParams) -> Answer:
    possible = {
        "elicitation": form("What is your name?", name={"type": "string"}),
        "sampling": sampling("Generate a greeting"),
        "roots": types.ListRootsRequest(),
    }
    wanted = {name: request for name, request in possible.items() if name in declared(context)}
    return ask(**wanted) if wanted and not params.input_responses else text("done")


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    listed = [types.Tool(name=name, description=f"{name} of the suite", input_schema=NO_ARGUMENTS) for name in TOOLS]
    return types.ListToolsResult(tools=listed)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> Answer:
    return await TOOLS[params.name](context, params)


def make() -> Server[Any]:
    server: Server[Any] = Server(NAME, version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


async def main() -> None:
    server = make()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
