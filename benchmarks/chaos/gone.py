"""A client that makes one long call and never hears its answer: the bench kills it meanwhile.

python gone.py http URL TOOL_ID NONCE
python gone.py stdio TOOL_ID NONCE          (starts ``toolscout serve`` with its own environment)
"""

import asyncio
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main() -> None:
    face, *rest = sys.argv[1:]
    if face == "http":
        target, tool_id, nonce = rest
        client = Client(target)
    else:
        tool_id, nonce = rest
        client = Client(StdioTransport(sys.executable, ["-m", "toolscout", "serve"], env=dict(os.environ)))
    async with client:
        print("connected", flush=True)
        await client.call_tool("invoke", {"tool_id": tool_id, "arguments": {"nonce": nonce}}, raise_on_error=False)
        print("answered", flush=True)


asyncio.run(main())
