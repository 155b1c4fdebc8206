"""An MCP server that tries to get out: one tool each for files, networks, other processes. Standard library only."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

TOOLS = ("read", "write", "list", "connect", "fetch", "look", "kill", "leave", "namespace", "farewell", "grow")


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def behave(name, given):
    if name == "read":
        return text(Path(given["path"]).read_text())
    if name == "write":
        Path(given["path"]).write_text("from inside")
        return text("written")
    if name == "list":
        return text(sorted(item.name for item in Path(given["path"]).iterdir()))
    if name == "connect":
        with socket.create_connection((given["host"], given["port"]), timeout=5) as connection:
            return text(connection.recv(100).decode())
    if name == "abstract":
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect("\0" + given["name"])
        return text("connected")
    if name == "keyring":
        system = ctypes.CDLL(None)
        system.syscall.restype = ctypes.c_long
        return text(system.syscall(given["keyctl"], 10, -3, b"user", given["name"].encode(), 0) > 0)  # KEYCTL_SEARCH
    if name == "fetch":
        try:
            with urllib.request.urlopen(given["url"], timeout=10) as answer:
                return text([answer.status, answer.read().decode()])
        except urllib.error.HTTPError as error:
            return text([error.code, error.read().decode()])
    if name == "look":
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        status = Path("/proc/self/status").read_text().splitlines()
        caps = {line.split(":")[0]: line.split()[1] for line in status if line.startswith(("Cap", "NoNewPrivs"))}
        return text(
            {
                "pids": pids,
                "uid": os.getuid(),
                "gid": os.getgid(),
                "groups": os.getgroups(),
                "caps": caps,
                "env": dict(os.environ),
                "cwd": str(Path.cwd()),
            }
        )
    if name == "kill":
        os.kill(given["pid"], signal.SIGKILL)
        return text("killed")
    if name == "leave":
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)", given["mark"]],
            start_new_session=True,
            env={},
        )
        return text(child.pid)
    if name == "namespace":
        done = subprocess.run(["unshare", "--user", "true"], capture_output=True, text=True)
        return text({"status": done.returncode, "said": done.stderr})
    if name == "farewell":

        def leave(*_):
            time.sleep(0.1)
            Path(given["path"]).write_text("goodbye")
            os._exit(0)

        signal.signal(signal.SIGTERM, leave)
        return text("ready")
    if name == "grow":
        return text(len(bytearray(given["mib"] * 2**20)))
    raise ValueError(name)


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "prober", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    elif method == "tools/call":
        try:
            result = behave(params["name"], params.get("arguments") or {})
        except (OSError, MemoryError) as error:
            result = {**text(f"{type(error).__name__}: {error}"), "isError": True}
    else:
        print(
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True
        )
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
if "--deaf" in sys.argv:
    time.sleep(300)
