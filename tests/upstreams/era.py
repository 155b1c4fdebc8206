"""A server of one protocol era only, on the SDK's low-level ``Server``.

    python era.py legacy|modern          stdio
    python era.py legacy|modern PORT     streamable HTTP at /mcp

``legacy`` knows only the 2025 handshake.
"""

import asyncio
import sys

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

ERA = sys.argv[1]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE = {"type": "object", "properties": {}}
UNSOUND = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "no token"}}}
TOOLS = dict.fromkeys(("parts", "steps", "fails", "refuses", "needs", "asks", "version"), NONE)
TOOLS |= {"echo": TEXT, "unsound": UNSOUND}


def text(value, **more):
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)], **more)


async def list_tools(context, params):
    described = [types.Tool(name=n, description=f"{n} of {ERA}", input_schema=schema) for n, schema in TOOLS.items()]
    return types.ListToolsResult(tools=described)


async def call_tool(context, params):
    if params.name == "echo":
        said = params.arguments["text"]
        return text(said, structured_content={"said": said})
    if params.name == "parts":
        image = types.ImageContent(type="image", data="aGk=", mime_type="image/png")
        link = types.ResourceLink(type="resource_link", name="more", uri="test://more")
        return types.CallToolResult(content=[image, link])
    if params.name == "steps":
        for step in (1, 2, 3):
            await context.session.report_progress(step, 3, f"step {step}")
        return text("done")
    if params.name == "fails":
        return text("no luck", is_error=True)
    if params.name == "refuses":
        raise MCPError(types.INVALID_PARAMS, "not like this")
    if params.name == "needs" and ERA == "modern":
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", data)
    if params.name == "asks" and ERA == "modern":
        if not params.input_responses:
            schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
            form = types.ElicitRequestFormParams(message="Which colour?", requested_schema=schema)
            return types.InputRequiredResult(input_requests={"q": types.ElicitRequest(params=form)}, request_state="s")
        return text(f"{params.input_responses['q'].content['color']} {params.request_state}")
    if params.name == "asks":
        declared = context.session.client_capabilities
        return text("can be asked" if declared and declared.elicitation else "cannot be asked")
    return text(context.protocol_version)


server = Server(ERA, version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio():
    async with stdio_server() as (read, write):
        if ERA == "legacy":
            await serve_loop(server, read, write, lifespan_state={})
        else:
            await server.run(read, write, server.create_initialization_options())


class Older:
    """What a server does that came before the stateless era: it does not know that version."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"mcp-protocol-version") == b"2026-07-28":
            error = {"code": -32000, "message": "Bad Request: Unsupported protocol version"}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)
            return
        await self.app(scope, receive, send)


if len(sys.argv) > 2:
    import uvicorn
    from starlette.responses import JSONResponse

    app = server.streamable_http_app()
    app = Older(app) if ERA == "legacy" else app
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
else:
    asyncio.run(over_stdio())
