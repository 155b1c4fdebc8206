"""A server of the 2025 era that answers with what it is told to, byte for byte. Standard library only.

    python odd.py           stdio
    python odd.py PORT      streamable HTTP, each answer as JSON at /json and as an event at /event

Its tool ``say`` writes ``lines``, in which $ID stands for the request's id and $TOKEN for its progress token; bytes
beyond ASCII are written as Latin-1. Over HTTP the last line is the answer.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ABOUT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "odd \ud83d", "version": "\ud83d"},
    "instructions": "Half \ud83d of it.",
}
TOOLS = [
    {"name": name, "description": "Says what it is told, \ud83d or not.", "inputSchema": {"type": "object"}}
    for name in ("say", "fine")
]


def answers(message):
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        return []
    if method == "tools/call" and params["name"] == "say":
        token = json.dumps((params.get("_meta") or {}).get("progressToken"))
        lines = params["arguments"]["lines"]
        told = [line.replace("$ID", json.dumps(message["id"])).replace("$TOKEN", token) for line in lines]
        return [line.encode("latin-1") for line in told]
    result = {
        "initialize": ABOUT,
        "ping": {},
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [{"type": "text", "text": "fine"}]},
    }.get(method)
    outcome = {"error": {"code": -32601, "message": "no \ud83d"}} if result is None else {"result": result}
    return [json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode()]


class Web(BaseHTTPRequestHandler):
    def do_POST(self):
        told = answers(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        event = self.path == "/event"
        body = b"".join(b"data: %b\n\n" % line for line in told) if event else b"".join(told[-1:])
        self.send_response(200 if told else 202)
        self.send_header("content-type", "text/event-stream" if event else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        for start in range(0, len(body), 7):  # in pieces, so that escapes are cut
            self.wfile.write(body[start : start + 7])
            self.wfile.flush()

    def do_GET(self):
        self.send_error(405)

    def log_message(self, *_):
        pass


if len(sys.argv) > 1:
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Web).serve_forever()
for line in sys.stdin:
    for answer in answers(json.loads(line)):
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.flush()
