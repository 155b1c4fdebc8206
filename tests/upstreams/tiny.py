"""A tiny MCP server of the older era, standard library only, that misbehaves on demand.

    python tiny.py [--start hang|crash|exit0|noise|flood|strict|silent-probe] [--log FILE] [--pages N] [--name NAME]

Tools: ``echo`` and the ones named in ``behave`` below.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--start", default="")
parser.add_argument("--log")
parser.add_argument("--pages", type=int, default=1)
parser.add_argument("--name", default="tiny")
parser.add_argument("--crash-after", type=int, default=0)
parser.add_argument("--flag")
options = parser.parse_args()
lock = threading.Lock()
cancelled = set()
calls = 0


def note(line):
    if options.log:
        with Path(options.log).open("a") as file:
            file.write(line + "\n")


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def schema(**properties):
    return {"type": "object", "properties": properties}


TOOLS = [
    {
        "name": "echo",
        "title": "Echo",
        "description": "Answers what it gets.",
        "inputSchema": schema(text={"type": "string"}),
        "annotations": {"readOnlyHint": True},
        "outputSchema": {"type": "object"},
    },
    *(
        {"name": n, "description": n, "inputSchema": {"type": "object"}}
        for n in ("hang", "crash", "exit", "big", "flood", "noise", "fork", "env", "progress", "sleep", "error")
    ),
    *({"name": n, "inputSchema": {"type": "object"}} for n in ("fail", "meta", "pid", "change", "bad", "latin")),
]


def behave(request, params):
    name, arguments = params.get("name"), params.get("arguments") or {}
    if name == "echo":
        return text(arguments.get("text", ""), structuredContent={"text": arguments.get("text", "")})
    if name == "hang":
        note("hang")
        while request not in cancelled:
            time.sleep(0.01)
        return None
    if name == "sleep":
        time.sleep(arguments["seconds"])
        return text("slept")
    if name == "crash":
        sys.stderr.write("Traceback: it all went wrong with " + os.environ.get("API_KEY", "nothing") + "\n")
        sys.stderr.write(arguments.get("last_words", ""))
        sys.stderr.flush()
        os._exit(3)
    if name == "exit":
        threading.Timer(0.1, os._exit, (0,)).start()  # after the answer, on a busy machine too
        return text("bye")
    if name == "big":
        return text("x" * arguments["bytes"])
    if name == "flood":
        line = b"flooding stderr " * 64 + b"\n"
        for _ in range(arguments["bytes"] // len(line)):
            os.write(2, line)
        return text("flooded")
    if name == "noise":
        for line in ("hello, I am a log line", '{"no": "jsonrpc"}', "[1, 2, 3]", '"text"', "{broken", ""):
            with lock:
                sys.stdout.write(line + "\n")
        return text("after the noise")
    if name == "latin":
        with lock:
            sys.stdout.buffer.write(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"caf\xe9"}]}}\n' % request
            )
            sys.stdout.flush()
        return None
    if name == "fork":
        code = "import signal,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(300)"
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code], start_new_session=bool(arguments.get("new_session"))
        )
        return text(str(child.pid))
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "pid":
        return text(str(os.getpid()))
    if name == "progress":
        token = (params.get("_meta") or {}).get("progressToken")
        for step in (1, 2, 3):
            send(
                {
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"},
                }
            )
            time.sleep(0.02)
        return text("done")
    if name == "meta":
        return text(
            json.dumps(params.get("_meta")),
            _meta={"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}, "kept": 1},
        )
    if name == "fail":
        return text("the tool says no", isError=True)
    if name == "error" and "code" in arguments:
        written = json.dumps(arguments).replace("$KEY", os.environ.get("API_KEY", ""))
        send({"id": request, "error": json.loads(written.replace('"$DEEP"', "[" * 300 + "]" * 300))})
        return None
    if name == "bad":
        return {"content": "not a list"}
    if name == "change":
        TOOLS.append({"name": "new_tool", "inputSchema": {"type": "object"}})
        send({"method": "notifications/tools/list_changed"})
        return text("changed")
    raise ValueError(f"unknown tool {name}")


def handle(message):
    global calls
    request, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "notifications/cancelled":
        cancelled.add(params.get("requestId"))
        note(f"cancelled {params.get('requestId')}")
    if request is None or method is None:
        return
    if method == "initialize":
        note("initialize")
        send(
            {
                "id": request,
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": options.name, "title": "Tiny", "version": "1.2.3"},
                    "instructions": "Use me gently.",
                },
            }
        )
    elif method == "ping":
        send({"id": request, "result": {}})
    elif method == "tools/list":
        note("tools/list")
        size = -(-len(TOOLS) // options.pages)
        start = int(params.get("cursor", 0))
        page = {"tools": TOOLS[start : start + size]}
        if start + size < len(TOOLS):
            page["nextCursor"] = str(start + size)
        send({"id": request, "result": page})
    elif method == "tools/call":
        calls += 1
        note(f"call {params.get('name')}")
        try:
            result = behave(request, params)
        except ValueError as error:
            send({"id": request, "error": {"code": -32602, "message": str(error)}})
            return
        if result is not None:
            send({"id": request, "result": result})
        if options.crash_after and calls >= options.crash_after:
            os._exit(7)
    else:
        send({"id": request, "error": {"code": -32601, "message": "Method not found"}})


note(f"start {os.getpid()}")
if options.start == "hang":
    time.sleep(300)
if options.start == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(300)
if options.start == "crash":
    sys.stderr.write("no such module: frobnicate\n")
    sys.exit(1)
if options.start == "crash-once" and not Path(options.flag).exists():
    Path(options.flag).touch()
    sys.exit(1)
if options.start == "noise":
    print("Starting the wonderful server ...\n\n{not json}\n[INFO] ready", flush=True)
first = True
for line in sys.stdin:
    message = json.loads(line)
    if first and options.start == "strict" and message.get("method") != "initialize":
        sys.stderr.write("expected initialize\n")
        sys.exit(1)
    if options.start == "silent-probe" and message.get("method") == "server/discover":
        continue
    first = False
    if message.get("method") == "tools/call":
        threading.Thread(target=handle, args=(message,), daemon=True).start()
    else:
        handle(message)
os._exit(0)
