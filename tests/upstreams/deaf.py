"""A server that answers the handshake and one call, then never reads its stdin again."""

import json
import sys
import time

while True:
    message = json.loads(sys.stdin.readline())
    method = message.get("method")
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "deaf", "version": "0"}}
    elif method == "tools/call":
        result = {"content": []}
    elif "id" in message:
        print(
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True
        )
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if method == "tools/call":
        time.sleep(300)
