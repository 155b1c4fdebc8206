"""Run a person's whole day with Toolscout, from pip install to undo, and count what it takes of them.

    python runs/day.py WORK [--source CHECKOUT] [--json OUT]

Twelve real servers (npm, PyPI) and one of its own with an address stand in a Claude Desktop file with keys in clear.
The day: install, import, connect, a start as a desktop client makes it (no shell variables), ten tasks, the update of
one server, undo. Counted: commands typed, questions answered, waits of more than five seconds. Needs Linux with
bubblewrap, git, Node.js and uv; fetches packages. WORK must not exist. Fails with status 1 where a task is not done.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import http.server
import json
import os
import pty
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

LONG = 5.0
_MACHINE = ("PIP_", "UV_", "npm_config_", "NPM_CONFIG_", "SSL_CERT", "NODE_EXTRA_CA", "REQUESTS_CA")
"""Variables of how this machine reaches registries; no key is among them."""
KEYS = {"BRAVE_API_KEY": "BSA-made-up-0123456789", "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_" + "x1Y2" * 9}
NOTION = "Bearer ntn_made-up-0123456789abcdef"
HEADER = "Bearer made-up-key-of-the-notes-server"
QUESTION = re.compile(r"\[[yYnN]/[yYnN]\]:? ?$")


class Day:
    """Type commands as a person does: answer their questions, and keep how long each took."""

    def __init__(self, work: Path) -> None:
        self.work, self.home = work, work / "user"
        self.steps: list[dict[str, Any]] = []
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "TERM": "xterm", "TOOLSCOUT_SANDBOX": "on"}
        self.env |= {k: v for k, v in os.environ.items() if k.startswith(_MACHINE)}

    def types(self, *command: str, answer: str = "y", fails: bool = False) -> str:
        """Run a command on a terminal of its own, answering each question."""
        began, questions, shown, told = time.monotonic(), 0, "", 0
        master, slave = pty.openpty()
        process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=self.env, cwd=self.home, start_new_session=True
        )
        os.close(slave)
        while True:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    shown += os.read(master, 65536).decode("utf-8", "replace")
                except OSError:
                    break
            elif process.poll() is not None:
                break
            if len(shown) > told and QUESTION.search(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown[told:])):
                told, questions = len(shown), questions + 1
                os.write(master, f"{answer}\n".encode())
        os.close(master)
        code = process.wait()
        line = " ".join(Path(word).name if n == 0 else word for n, word in enumerate(command))
        self.note(line, time.monotonic() - began, questions=questions, code=code)
        if code and not fails:
            sys.exit(f"{line}: status {code}\n{shown}")
        return shown

    def note(self, what: str, seconds: float, **more: Any) -> None:
        """Keep one step, and show it."""
        self.steps.append({"what": what.replace(str(self.work), "WORK"), "seconds": round(seconds, 1), **more})
        print(f"{seconds:6.1f} s  {self.steps[-1]['what'][:100]}  {more}", flush=True)


class Notes(http.server.BaseHTTPRequestHandler):
    """A page, and a remote MCP server that wants a key: one tool that keeps a note."""

    kept: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer(200, b"<html><body><h1>Tides</h1><p>High water at noon.</p></body></html>", "text/html")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != HEADER:
            self._answer(401, b"{}", "application/json")
            return
        if "id" not in message:
            self._answer(202, b"", "application/json")
            return
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        tool = {"name": "keep_note", "description": "Keep a note on the notes server.", "inputSchema": schema}
        info = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
        if message["method"] == "tools/call":
            self.kept.append(message["params"]["arguments"]["text"])
        results = {"initialize": info, "tools/list": {"tools": [tool]},
                   "tools/call": {"content": [{"type": "text", "text": "kept"}]}}  # fmt: skip
        found = results.get(message["method"])
        body = {"result": found} if found else {"error": {"code": -32601, "message": "no such method"}}
        self._answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def configured(work: Path, port: int) -> dict[str, Any]:
    """The servers of the client's file."""
    files, npx = work / "files", ["-y"]
    return {
        "filesystem": {"command": "npx", "args": [*npx, "@modelcontextprotocol/server-filesystem", str(files)]},
        "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", str(work / "repo")]},
        "time": {"command": "uvx", "args": ["mcp-server-time", "--local-timezone", "Europe/Berlin"]},
        "fetch": {"command": "uvx", "args": ["mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"]},
        "memory": {"command": "npx", "args": [*npx, "@modelcontextprotocol/server-memory@2025.8.4"],
                   "env": {"MEMORY_FILE_PATH": str(files / "memory.json")}},
        "everything": {"command": "npx", "args": [*npx, "@modelcontextprotocol/server-everything"]},
        "sequential-thinking": {"command": "npx", "args": [*npx, "@modelcontextprotocol/server-sequential-thinking"]},
        "sqlite": {"command": "uvx",
                   "args": ["--with", "mcp<2", "mcp-server-sqlite", "--db-path", str(files / "shop.db")]},
        "calculator": {"command": "uvx", "args": ["mcp-server-calculator"]},
        "brave-search": {"command": "npx", "args": [*npx, "@modelcontextprotocol/server-brave-search"],
                         "env": {"BRAVE_API_KEY": KEYS["BRAVE_API_KEY"]}},
        "github": {"command": "npx", "args": [*npx, "@modelcontextprotocol/server-github"],
                   "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": KEYS["GITHUB_PERSONAL_ACCESS_TOKEN"]}},
        "notion": {"command": "npx", "args": [*npx, "@notionhq/notion-mcp-server"],
                   "env": {"OPENAPI_MCP_HEADERS": json.dumps({"Authorization": NOTION})}},
        "notes": {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": HEADER}},
    }  # fmt: skip


def tasks(work: Path, port: int) -> list[tuple[str, str, dict[str, Any], Any]]:
    """List the tasks: the request, the tool that does it, its arguments, and a check that it was done."""
    files, repo = work / "files", work / "repo"

    def git(*words: str) -> str:
        line = ["git", "-C", str(repo), "-c", "safe.directory=*", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False).stdout

    def stock() -> list[Any]:
        with contextlib.closing(sqlite3.connect(files / "shop.db")) as database:
            return database.execute("select name from fruit").fetchall()

    return [
        ("write a text file", "filesystem/write_file", {"path": f"{files}/plan.txt", "content": "Buy apples"},
         lambda _: (files / "plan.txt").read_text() == "Buy apples"),
        ("replace a line in a file", "filesystem/edit_file",
         {"path": f"{files}/plan.txt", "edits": [{"oldText": "apples", "newText": "pears"}]},
         lambda _: (files / "plan.txt").read_text() == "Buy pears"),
        ("stage files in git", "git/git_add", {"repo_path": str(repo), "files": ["a.txt"]},
         lambda _: "a.txt" in git("diff", "--cached", "--name-only")),
        ("commit staged changes in git", "git/git_commit", {"repo_path": str(repo), "message": "Second"},
         lambda _: "Second" in git("log", "--oneline")),
        ("remember facts about a person", "memory/create_entities",
         {"entities": [{"name": "Anna", "entityType": "person", "observations": ["likes pears"]}]},
         lambda _: "likes pears" in (files / "memory.json").read_text()),
        ("create a table in the sqlite database", "sqlite/create_table", {"query": "CREATE TABLE fruit (name TEXT)"},
         lambda _: stock() == []),
        ("insert a row into the database", "sqlite/write_query", {"query": "INSERT INTO fruit VALUES ('pear')"},
         lambda _: stock() == [("pear",)]),
        ("fetch a web page", "fetch/fetch", {"url": f"http://127.0.0.1:{port}/"}, lambda said: "High water" in said),
        ("convert a time to another time zone", "time/convert_time",
         {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"},
         lambda said: "Asia/Tokyo" in said),
        ("keep a note on the notes server", "notes/keep_note", {"text": "pears are in"},
         lambda _: "pears are in" in Notes.kept),
    ]  # fmt: skip


async def work_through(day: Day, entry: dict[str, Any], port: int) -> list[str]:
    """Do the tasks as a desktop client would: started by its entry, without the shell's variables."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    certificates = {k: v for k, v in day.env.items() if "CERT" in k or "_CA" in k}  # of the machine, not the shell
    bare = {"HOME": str(day.home), "PATH": "/usr/bin:/bin", **certificates, **entry.get("env", {})}
    failed = []
    began = time.monotonic()
    async with Client(StdioTransport(entry["command"], entry["args"], env=bare), timeout=400) as client:
        tools = await client.list_tools()
        day.note(f"the client starts Toolscout and lists {len(tools)} tools", time.monotonic() - began)
        for asked, tool, arguments, done in tasks(day.work, port):
            began = time.monotonic()
            found = await client.call_tool("find_tools", {"query": asked}, raise_on_error=False)
            names = [hit["tool_id"] for hit in (found.structured_content or {}).get("tools", [])]
            said = await client.call_tool("invoke", {"tool_id": tool, "arguments": arguments}, raise_on_error=False)
            text = "\n".join(getattr(block, "text", "") for block in said.content)
            with contextlib.suppress(Exception):
                said.is_error = said.is_error or not done(text)
            place = names.index(tool) + 1 if tool in names else 0
            day.note(f"task: {asked}", time.monotonic() - began, found_at=place, done=not said.is_error)
            if said.is_error or not place:
                failed.append(f"{asked}: {names[:3]}\n{text[:600]}")
    return failed


def main() -> None:
    """Run the day and write what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--source", default=str(Path(__file__).parents[1]))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    work = options.work.absolute()
    day = Day(work)
    for folder in (day.home, work / "files", work / "repo"):
        folder.mkdir(parents=True)
    git = functools.partial(subprocess.run, cwd=work / "repo", check=True, capture_output=True)
    git(["git", "init", "-q"])
    (work / "repo" / "a.txt").write_text("first")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    git(["git", "add", "."]), git(["git", *who, "commit", "-qm", "First"])
    git(["git", "config", "user.name", "A"]), git(["git", "config", "user.email", "a@example.org"])
    (work / "repo" / "a.txt").write_text("second")
    if os.geteuid() == 0:  # nothing of root's is opened in a sandbox
        subprocess.run(["chown", "-R", "1000:1000", str(work / "files"), str(work / "repo")], check=True)
        work.chmod(0o755)
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notes)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    port = serving.server_port
    file = day.home / ".config" / "Claude" / "claude_desktop_config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": configured(work, port)}, indent=2))
    before = file.read_bytes()

    day.types(sys.executable, "-m", "venv", str(work / "venv"))
    day.types(str(work / "venv" / "bin" / "pip"), "install", "-q", options.source)
    toolscout = str(work / "venv" / "bin" / "toolscout")
    said = day.types(toolscout, "import", "claude", fails=True)
    print(said.strip().splitlines()[-1])
    imported = day.steps[-1]["seconds"]
    day.types(toolscout, "connect", "claude", "--replace")
    after = file.read_text()
    leaked = [key for key in (*KEYS.values(), HEADER.split()[1], "ntn_made-up") if key in after]
    mcp = next(day.home.rglob("mcp.json")).read_text()
    leaked += [key for key in (*KEYS.values(), HEADER.split()[1], "ntn_made-up") if key in mcp]
    day.types(toolscout, "doctor", "--as-client")
    entry = json.loads(after)["mcpServers"]["toolscout"]
    failed = asyncio.run(work_through(day, entry, port))
    day.types(toolscout, "update", "memory")
    day.types(toolscout, "connect", "claude", "--undo")
    typed = [step for step in day.steps if "code" in step]
    result = {
        "servers": len(configured(work, port)),
        "commands": len(typed),
        "questions": sum(step["questions"] for step in typed),
        "waits": sum(step["seconds"] > LONG for step in day.steps),
        "import_seconds": imported,
        "import_said": said.strip().splitlines()[-1],
        "tasks_done": 10 - len(failed),
        "undone": file.read_bytes() == before,
        "keys_in_clear": len(leaked),
        "steps": day.steps,
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "steps"}, indent=2))
    print("\n".join(failed))
    if failed or leaked or not result["undone"]:
        sys.exit(1)


if __name__ == "__main__":
    if shutil.which("bwrap") is None:
        sys.exit("bubblewrap is not installed.")
    main()
