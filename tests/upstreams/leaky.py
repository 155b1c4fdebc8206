"""An upstream that gives away what it was started with: in results, errors, stderr, noise on stdout, a crash."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from urllib.parse import urlsplit

KNOWN = " ".join([os.environ.get("LEAKY_TOKEN", ""), os.environ.get("LEAKY_PASSWORD", ""), *sys.argv[1:]])
LONG, PEM, DSN = (os.environ.get(name, "") for name in ("LEAKY_LONG", "LEAKY_PEM", "LEAKY_DSN"))
PASSWORD = urlsplit(DSN).password or ""
BASIC = base64.b64encode(f"bob:{PASSWORD}".encode()).decode()
FORMS = [
    f"{PEM!r} {json.dumps(PEM)}\n{PEM}{os.environ.get('LEAKY_LINE', '').strip()} {PASSWORD} of {DSN} Basic {BASIC}",
    *[f"token {LONG}"] * 4,
]
"""As programs print what they know, and the last one too long for what is shown of it."""


def tool(name: str) -> dict[str, object]:
    """A tool that takes a text, and says in its listing what the server was started with."""
    text = {"type": "string", "default": KNOWN, "description": " ".join(FORMS)}
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}, "text": text}}
    return {
        "name": name,
        "title": f"{name} {KNOWN}",
        "description": f"The {name} of a text, as {KNOWN}.",
        "inputSchema": schema,
    }


def call(name: str, arguments: dict[str, object]) -> dict[str, object]:
    """The result; ``failure`` is an error of the tool, ``crash`` ends the process, ``sleep`` takes a minute."""
    if name == "sleep":
        time.sleep(60)
    if name == "forms":
        print(FORMS[0], file=sys.stderr, flush=True)
        os._exit(1)
    if name == "crash":
        print("\n".join(FORMS), file=sys.stderr, flush=True)
        raise RuntimeError(f"crashed with {KNOWN} {arguments}")
    return {"content": [{"type": "text", "text": f"{KNOWN} {json.dumps(arguments)}"}], "isError": name == "failure"}


print(f"starting with {KNOWN}", file=sys.stderr, flush=True)
print(f"noise: {KNOWN}", flush=True)
print("noise: " + " ".join(FORMS), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    answer: dict[str, object] = {}
    if method == "initialize":
        info = {"name": "leaky", "version": KNOWN, "title": f"Leaky {KNOWN}"}
        answer = {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": info,
                "instructions": KNOWN,
            }
        }
    elif method == "tools/list":
        answer = {"result": {"tools": [tool(n) for n in ("echo", "failure", "refusal", "crash", "forms", "sleep")]}}
    elif method == "tools/call" and params["name"] == "refusal":
        answer = {"error": {"code": -32000, "message": f"refused: {KNOWN}", "data": KNOWN}}
    elif method == "tools/call":
        answer = {"result": call(params["name"], params.get("arguments", {}))}
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
