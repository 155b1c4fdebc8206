"""A modern server on the SDK's low-level ``Server``: input-required round trips, progress, change notices."""

import asyncio
import json

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

names = ["echo", "ask", "progress", "meta", "grow"]
bus = InMemorySubscriptionBus()


async def list_tools(context, params):
    return types.ListToolsResult(tools=[types.Tool(name=n, input_schema={"type": "object"}) for n in names])


def text(value):
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


async def call_tool(context, params):
    if params.name == "ask":
        if not params.input_responses:
            schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
            form = types.ElicitRequestFormParams(message="Which colour?", requested_schema=schema)
            return types.InputRequiredResult(
                input_requests={"q": types.ElicitRequest(params=form)}, request_state="state-1"
            )
        answer = params.input_responses["q"]
        return text(f"{answer.content['color']} {params.request_state}")
    if params.name == "progress":
        await context.session.report_progress(0.5, 1.0, "half")
    if params.name == "meta":
        return text(json.dumps(dict(context.meta or {})))
    if params.name == "grow":
        names.append("new_tool")
        await bus.publish(ToolsListChanged())
    return text(str((params.arguments or {}).get("text")))


server = Server(
    "lowlevel",
    version="9",
    instructions="low",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_subscriptions_listen=ListenHandler(bus),
)


async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
