"""An MCP server of the 2025 era, standard library only, that misbehaves as a file tells it to.

    python upstream.py NAME CONTROL_FILE [--http PORT]

The control file holds one word, read anew for every message; no file means ``ok``. Every answer carries the nonce of
its call, so that one that reaches the wrong caller is seen. ``MODES`` below says what the words do.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODES = {
    "ok": "answers at once",
    "slow": "answers after one and a half seconds",
    "hang": "never answers",
    "flood_stdout": "writes 4 MB of lines that are no protocol before every answer",
    "flood_stderr": "writes 8 MB to stderr before every answer",
    "flood_answer": "answers with 20 MB",
    "lie_schema": "structured content that its own output schema forbids",
    "lie_shape": "a result that is none",
    "lie_ids": "answers twice, and to requests that nobody made",
    "lie_error": "a JSON-RPC error of impossible fields",
    "change": "another description, and a notice that the tools have changed, between listing and call",
    "drop": "half of the answer, then the end",
    "crash": "the end before the answer",
    "leak": "keeps 24 MB more with every call and every tenth of a second, until it is killed for it",
    "fork": "leaves a child in a session of its own that ignores SIGTERM, then goes on",
}
MEMORY = 400_000_000  # bytes of address space: the leak must hurt the upstream, not the machine

parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("control", type=Path)
parser.add_argument("--http", type=int, default=0)
options = parser.parse_args()
writing = threading.Lock()
leaked = []
announced = "ok"


def mode():
    """The word in the control file."""
    try:
        return options.control.read_text().strip() or "ok"
    except OSError:
        return "ok"


def tools():
    """The tools as they are now."""
    about = f"Sends back the text that it is given, by way of {options.name}."
    if mode() == "change":
        about += " Now with more of everything."
    nonce = {"type": "object", "properties": {"nonce": {"type": "string"}}, "required": ["nonce"]}
    return [
        {"name": "echo", "description": about, "inputSchema": nonce, "outputSchema": nonce},
        {"name": "wait", "description": "Sends back a text after a while.", "inputSchema": nonce},
    ]


def answer(message):
    """The response to one request, or None for a notification."""
    method, ident = message.get("method"), message.get("id")
    if ident is None:
        return None
    if method == "initialize":
        info = {"name": options.name, "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": tools()}
    elif method == "ping":
        result = {}
    elif method == "tools/call":
        params = message["params"]
        nonce = str((params.get("arguments") or {}).get("nonce"))
        if params["name"] == "wait":
            time.sleep(20)
        result = {"content": [{"type": "text", "text": nonce}], "structuredContent": {"nonce": nonce}}
    else:
        return {"jsonrpc": "2.0", "id": ident, "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": ident, "result": result}


def leak():
    """Hold on to ever more memory; as with the kernel's killer, the end comes without a word."""
    try:
        leaked.append(bytearray(os.urandom(1024)) * 24_000)
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)


def spoiled(word, message, response):
    """The lines to send for a call in this mode, as bytes; those that matter only on pipes are written on the way."""
    ident = message["id"]
    if word == "slow":
        time.sleep(1.5)
    elif word == "hang":
        time.sleep(3600)
    elif word == "flood_stdout" and not options.http:
        send(b"a line of no protocol at all, over and over\n" * 100_000)
    elif word == "flood_stderr":
        os.write(2, b"")
        for _ in range(100):
            os.write(2, b"flood " * 13_000 + b"\n")
    elif word == "flood_answer":
        response["result"]["content"].append({"type": "text", "text": "x" * 20_000_000})
    elif word == "lie_schema":
        response["result"]["structuredContent"] = {"nonce": [1, 2, {"no": response["result"]["content"][0]["text"]}]}
    elif word == "lie_shape":
        response["result"] = {"content": {"type": "no list"}}
    elif word == "lie_error":
        del response["result"]
        response["error"] = {"code": "many", "message": None}
    elif word == "lie_ids":
        stray = {**response, "id": 1_000_000, "result": {"content": [{"type": "text", "text": "n-stray"}]}}
        twice = {**stray, "id": ident}
        return [encoded(stray), encoded(response), encoded(twice)]
    elif word == "leak":
        leak()
    elif word == "fork":
        code = "import signal,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(3600)"
        subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=True, stdin=subprocess.DEVNULL)
    return [encoded(response)]


def encoded(response):
    """One message as a line."""
    return json.dumps(response).encode() + b"\n"


def send(data):
    """Write to stdout, whole."""
    with writing:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def serve_pipes():
    """One client on stdin and stdout."""

    def handle(message):
        word = mode()
        response = answer(message)
        if response is None:
            return
        if message.get("method") != "tools/call":
            send(encoded(response))
            return
        if word == "crash":
            os._exit(3)
        lines = spoiled(word, message, response)
        if word == "drop":
            send(lines[0][: len(lines[0]) // 2])
            os._exit(0)
        for line in lines:
            send(line)

    threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            threading.Thread(target=handle, args=(message,), daemon=True).start()
        else:
            handle(message)
    os._exit(0)


def watch():
    """Announce changed tools, and leak also without calls."""
    global announced
    while True:
        time.sleep(0.1)
        word = mode()
        if (word == "change") != (announced == "change"):
            send(encoded({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        announced = word
        if word == "leak":
            leak()


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP, with JSON for every answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        word = mode() if message.get("method") == "tools/call" else "ok"
        response = answer(message)
        if response is None:
            self.reply(202, b"")
            return
        if word == "crash":
            self.close_connection = True
            return
        data = spoiled(word, message, response)[0]
        self.reply(200, data[: len(data) // 2] if word == "drop" else data, len(data))

    def do_GET(self):
        self.reply(405, b"")

    def do_DELETE(self):
        self.reply(200, b"")

    def reply(self, status, data, length=None):
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data) if length is None else length))
            self.end_headers()
            self.wfile.write(data)
        if length not in (None, len(data)):
            self.close_connection = True

    def log_message(self, *_):
        pass


threading.stack_size(262_144)
resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
if options.http:
    ThreadingHTTPServer(("127.0.0.1", options.http), Handler).serve_forever()
else:
    serve_pipes()
