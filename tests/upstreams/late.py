"""A server of the 2025 era whose tools, or whose start, take their time. Standard library only.

    python late.py tools SECONDS     no tools at first; two come, one by one, each with a notice
    python late.py start SECONDS     it takes so long to start
    python late.py echo              says at each listing that its tools have changed, though they have not
    python late.py volatile          describes its tools with the time of its start
    python late.py none              has no tools, and never will

``LATE_LOG`` names a file that gets a line for each listing.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

MODE, SECONDS = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
LOCK = threading.Lock()
TOOLS = []


def send(**message):
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def changed():
    send(method="notifications/tools/list_changed")


def add(*names):
    since = f" Started at {time.time()}." if MODE == "volatile" else ""
    TOOLS.extend(
        {"name": n, "description": f"Place a {n} in the scene.{since}", "inputSchema": {"type": "object"}}
        for n in names
    )


def later():
    time.sleep(SECONDS)
    for name in ("cube", "sphere"):
        add(name)
        changed()
        time.sleep(0.2)


if MODE == "start":
    time.sleep(SECONDS)
if MODE in ("start", "echo", "volatile"):
    add("cube", "sphere")
for line in sys.stdin:
    message = json.loads(line)
    method, request = message.get("method"), message.get("id")
    if method == "notifications/initialized" and MODE == "tools":
        threading.Thread(target=later, daemon=True).start()
    if request is None:
        continue
    if method == "initialize":
        about = {"name": "late", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        send(id=request, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": about})
    elif method == "tools/list":
        if "LATE_LOG" in os.environ:
            with Path(os.environ["LATE_LOG"]).open("a") as log:
                log.write("listed\n")
        if MODE == "echo":
            changed()
        send(id=request, result={"tools": TOOLS})
        if MODE == "echo":
            changed()
    elif method == "tools/call":
        send(id=request, result={"content": [{"type": "text", "text": "placed"}]})
    else:
        send(id=request, error={"code": -32601, "message": "unknown"})
