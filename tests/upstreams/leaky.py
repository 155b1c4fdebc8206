"""An upstream that gives away what it was started with: in results, errors, stderr, noise on stdout, a crash."""

from __future__ import annotations

import json
import os
import sys
import time

KNOWN = " ".join([os.environ.get("LEAKY_TOKEN", ""), os.environ.get("LEAKY_PASSWORD", ""), *sys.argv[1:]])


def tool(name: str) -> dict[str, object]:
    """A tool that takes a text."""
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}, "text": {"type": "string"}}}
    return {"name": name, "description": f"The {name} of a text.", "inputSchema": schema}


def call(name: str, arguments: dict[str, object]) -> dict[str, object]:
    """The result; ``failure`` is an error of the tool, ``crash`` ends the process, ``sleep`` takes a minute."""
    if name == "sleep":
        time.sleep(60)
    if name == "crash":
        raise RuntimeError(f"crashed with {KNOWN} {arguments}")
    return {"content": [{"type": "text", "text": f"{KNOWN} {json.dumps(arguments)}"}], "isError": name == "failure"}


print(f"starting with {KNOWN}", file=sys.stderr, flush=True)
print(f"noise: {KNOWN}", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    answer: dict[str, object] = {}
    if method == "initialize":
        info = {"name": "leaky", "version": "1"}
        answer = {
            "result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        }
    elif method == "tools/list":
        answer = {"result": {"tools": [tool(n) for n in ("echo", "failure", "refusal", "crash", "sleep")]}}
    elif method == "tools/call" and params["name"] == "refusal":
        answer = {"error": {"code": -32000, "message": f"refused: {KNOWN}", "data": KNOWN}}
    elif method == "tools/call":
        answer = {"result": call(params["name"], params.get("arguments", {}))}
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
