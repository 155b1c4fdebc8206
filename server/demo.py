"""``toolscout demo``: the main job, shown by a real client on real servers.

Everything happens in a temporary home. A FastMCP client starts ``toolscout serve`` over stdio, as Claude or Cursor
would, and finds, suggests and invokes against the starter set; last it finds what is not installed. The demo passes
only if what it shows really happened: every result is compared with what it must be.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from toolscout.errors import ToolscoutError, UpstreamError
from toolscout.settings import Settings

if TYPE_CHECKING:
    from fastmcp import Client
    from rich.console import Console

_SECONDS_A_STEP = 90.0
_REPEATS = 20
_CHARACTERS_A_TOKEN = 4
_QUERIES = (  # as an agent asks: one operation, in plain words
    "convert a time from one timezone to another",
    "show the latest commits of a git repository",
    "fetch a web page and read it as text",
)
_PRODUCT, _ASK_PRODUCT = "Linear", "create a Linear issue"
_NOBODY = "carry the sofa up to the third floor"
_COMMITS = ("Add the greeting", "Say it in French too", "Fix the accent")
_HEADLINE = "Herons return to the old canal"
_PAGE = f"""<!doctype html><html><head><title>Canal news</title></head><body><article><h1>{_HEADLINE}</h1>
<p>Three pairs of grey herons are nesting again beside the lock, for the first time in nineteen years.
Volunteers had spent two winters clearing the reed beds.</p></article></body></html>"""


@dataclass(frozen=True)
class Step:
    """One thing that was shown, whether it came out as it must, and how long it took."""

    name: str
    passed: bool
    ms: float
    detail: str = ""


@dataclass
class DemoResult:
    """What happened. ``numbers``: times in ms, sizes in tokens (characters / 4)."""

    steps: list[Step] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether everything that was shown really happened."""
        return self.error is None and bool(self.steps) and all(step.passed for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        """The result as one JSON object."""
        return {"passed": self.passed, **asdict(self)}


def run_demo(*, quiet: bool = False) -> DemoResult:
    """Run the demo; prints as it goes unless ``quiet``. Leaves nothing behind, neither files nor processes."""
    with tempfile.TemporaryDirectory(prefix="toolscout-demo-", ignore_cleanup_errors=True) as folder:
        demo = _Demo(Path(folder), _Screen(quiet))
        return asyncio.run(demo.run())


class _Screen:
    """The demo's words on stdout: colours on a terminal, plain text in a pipe."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        self._console: Console = Console(highlight=False, quiet=quiet, soft_wrap=True)

    def title(self, text: str) -> None:
        from rich.text import Text

        self._console.print()
        self._console.print(Text(text, style="bold"))

    def line(self, label: str, text: str, ms: float | None = None, *, good: bool = True) -> None:
        from rich.text import Text

        took = (
            "" if ms is None else f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"
        )
        line = Text.assemble(
            ("  ✓ " if good else "  ✗ ", "green" if good else "bold red"),
            (f"{label:<13}", "cyan"),
            text,
            (f"   {took}" if took else "", "dim"),
        )
        self._console.print(line)

    def more(self, text: str) -> None:
        from rich.text import Text

        for row in text.split("\n"):
            self._console.print(Text(" " * 17 + row, style="dim"))

    def plain(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))


class _Demo:
    def __init__(self, folder: Path, screen: _Screen) -> None:
        self.folder = folder
        self.screen = screen
        self.home = folder / "home"
        self.log = folder / "server.log"
        self.result = DemoResult()
        self.definitions = 0
        self.pack: Path | None = None

    async def run(self) -> DemoResult:
        self.screen.plain("Toolscout, live: a real MCP client, a real server, three real upstream servers behind it.")
        self.screen.plain("No key, no account, no network but this machine's own; all in a temporary folder.")
        try:
            await self._first_start()
            await self._session()
            await self._again()
        except (TimeoutError, ToolscoutError) as error:
            text = error.sentence() if isinstance(error, ToolscoutError) else "a step took too long"
            self._stop(text)
        except Exception as error:  # the client raises what the server's end causes: the demo must end in a sentence
            self._stop(f"{type(error).__name__}: {error}")
        self._end()
        return self.result

    def _stop(self, why: str) -> None:
        self.result.error = why
        self.screen.line("stopped", why, good=False)
        if self.log.is_file():
            self.screen.more("\n".join(self.log.read_text("utf-8", "replace").splitlines()[-8:]))

    def _done(self, name: str, passed: bool, started: float, detail: str, shown: str) -> None:
        ms = (time.perf_counter() - started) * 1000
        self.result.steps.append(Step(name, passed, round(ms, 2), detail))
        self.screen.line(name.split(":")[-1], shown, ms, good=passed)

    # --- acts --------------------------------------------------------------------------------------------------------

    async def _first_start(self) -> None:
        """Register the starter set in the temporary home. Here alone, fetch may read pages on this machine."""
        from toolscout.server.config import ServersFile
        from toolscout.server.engine import Engine
        from toolscout.server.starter import STARTERS, register_starter

        self.screen.title("First start: the servers that come with it are listed and indexed")
        started = time.perf_counter()
        settings = Settings(home=self.home, database="", starter=False)
        self.home.mkdir(parents=True)
        await asyncio.to_thread(self._lend_model, settings)
        self.pack = await asyncio.to_thread(_pack_in_use)
        names = register_starter(ServersFile(settings.servers_file), extra_args={"fetch": ["--allow-private-ips"]})
        missing = {s.name: why for s in STARTERS if (why := s.missing())}
        if missing:
            raise UpstreamError(
                f"Not all of the starter set can run here: {', '.join(f'{n} ({w})' for n, w in missing.items())}.",
                "Install what is missing and run it again.",
            )
        async with asyncio.timeout(_SECONDS_A_STEP), Engine(settings) as engine:
            await asyncio.gather(*(engine.refresh_server(name, reindex=False) for name in names))
            await engine.reindex()
            tools = list(engine.catalogue.tools())
        self.definitions = sum(
            _tokens({"name": t.name, "description": t.description, "inputSchema": t.input_schema}) for t in tools
        )
        counts = [f"{name} {sum(t.server_id == name for t in tools)}" for name in names]
        good = all(any(t.server_id == name for t in tools) for name in names)
        self._done("start:registered", good, started, f"{len(tools)} tools", f"{len(tools)} tools: {', '.join(counts)}")

    def _lend_model(self, settings: Settings) -> None:
        """Let the temporary home use the model that the user's own would, where it lies; without one it goes on."""
        from toolscout.server.models import ModelStore

        own = Settings()
        if own.model_url or importlib.util.find_spec("xllamacpp") is None:
            return
        with contextlib.suppress(ToolscoutError):
            model = ModelStore(own).resolve()
            if model is not None:
                ModelStore(settings).add(str(model.path), name=model.name)

    def _client(self) -> Client[Any]:
        """A client that starts the server as a program of its own, over stdio."""
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        kept = ("TOOLSCOUT_MODEL", "TOOLSCOUT_ENCODER")  # what belongs to the user's own home and catalogue stays out
        env = {k: v for k, v in os.environ.items() if not k.startswith("TOOLSCOUT_") or k.startswith(kept)}
        env["TOOLSCOUT_HOME"] = str(self.home)
        # A fetched pack lies in the user's own home.
        env["TOOLSCOUT_PACK"] = str(self.pack or "off")
        transport = StdioTransport(
            sys.executable, ["-P", "-m", "toolscout", "serve"], env=env, keep_alive=False, log_file=self.log
        )
        return Client(transport, init_timeout=_SECONDS_A_STEP)

    async def _session(self) -> None:
        client = self._client()
        self.screen.title("A client starts the server, as Claude or Cursor would")
        started = time.perf_counter()
        async with asyncio.timeout(4 * _SECONDS_A_STEP), client:
            tools = await client.list_tools()
            names = [tool.name for tool in tools]
            self.result.numbers["first_start_ms"] = round((time.perf_counter() - started) * 1000, 1)
            good = names == ["find_tools", "suggest_call", "invoke"]
            self._done("start:tools/list", good, started, ", ".join(names), f"{', '.join(names)}: that is all it sees")
            own = sum(
                _tokens({"name": t.name, "description": t.description, "inputSchema": t.input_schema}) for t in tools
            )
            self.result.numbers |= {"definitions_tokens": own, "starter_definitions_tokens": self.definitions}
            await self._time(client)
            await self._git(client)
            with _website(self.folder / "site") as url:
                await self._fetch(client, url)
            await self._mistake(client)
            await self._nothing(client)
            if self.pack is not None:
                await self._catalog(client)
            await self._measure(client)

    async def _time(self, client: Client[Any]) -> None:
        ask = "What time is it in Tokyo when it is 14:30 in Paris?"
        self.screen.title(f"“{ask}”")
        arguments = {"source_timezone": "Europe/Paris", "time": "14:30", "target_timezone": "Asia/Tokyo"}
        await self._find(client, "time", _QUERIES[0], "time/convert_time")
        await self._suggest(client, ask, "time/convert_time", arguments)
        now = datetime.now(ZoneInfo("Europe/Paris"))
        there = now.replace(hour=14, minute=30).astimezone(ZoneInfo("Asia/Tokyo"))
        await self._invoke(
            client, "time", "time/convert_time", arguments, [f"T{there:%H:%M}"], lambda _: f"{there:%H:%M} in Tokyo"
        )

    async def _git(self, client: Client[Any]) -> None:
        repository = _repository(self.folder / "repository")
        self.screen.title("“Which commits were made in this repository lately?”")
        await self._find(client, "git", _QUERIES[1], "git/git_log")
        await self._invoke(
            client, "git", "git/git_log", {"repo_path": str(repository), "max_count": 3}, list(_COMMITS),
            lambda _: " · ".join(reversed(_COMMITS)),
        )  # fmt: skip

    async def _fetch(self, client: Client[Any], url: str) -> None:
        self.screen.title("“Read this page to me”")
        await self._find(client, "fetch", _QUERIES[2], "fetch/fetch")
        await self._invoke(
            client, "fetch", "fetch/fetch", {"url": url}, ["grey herons", "nineteen years"],
            lambda text: _around(text, "grey herons"),
        )  # fmt: skip

    async def _mistake(self, client: Client[Any]) -> None:
        """A wrong call comes back with what is needed to correct it."""
        self.screen.title("A model gets an argument wrong")
        started = time.perf_counter()
        wrong = {"from_timezone": "Europe/Paris", "time": "14:30", "target_timezone": "Asia/Tokyo"}
        _, text, failed = await _call(client, "invoke", {"tool_id": "time/convert_time", "arguments": wrong})
        good = failed and "source_timezone" in text
        line = next((row for row in text.split("\n") if "source_timezone" in row), text[:120])
        self._done("mistake:refused", good, started, line, _short(line.lstrip("- ")))

    async def _nothing(self, client: Client[Any]) -> None:
        self.screen.title(f"“{_NOBODY[0].upper()}{_NOBODY[1:]}”")
        started = time.perf_counter()
        answer, _, _ = await _call(client, "find_tools", {"query": _NOBODY})
        good = bool(answer.get("no_match")) and not answer.get("tools")
        shown = "no tool here does this, and none is offered" if good else "a tool was offered"
        self._done("nothing:find_tools", good, started, json.dumps(answer)[:200], shown)

    async def _catalog(self, client: Client[Any]) -> None:
        """What is not installed is found in the built-in catalog, and said to be not installed."""
        self.screen.title(f"“{_ASK_PRODUCT[0].upper()}{_ASK_PRODUCT[1:]}”: {_PRODUCT} is not installed")
        started = time.perf_counter()
        answer, text, failed = await _call(client, "find_tools", {"query": _ASK_PRODUCT})
        tools: list[dict[str, Any]] = answer.get("tools") or []
        first = tools[0] if tools else {}
        named = _PRODUCT.casefold() in f"{first.get('tool_id')} {first.get('server')}".casefold()
        good = not failed and named and first.get("state") in ("needs_key", "needs_install")
        publisher = f", published by {first['publisher']}" if "publisher" in first else ""
        shown = f"{first.get('tool_id')}{publisher}: {first.get('state')}" if good else _short(text)
        self._done("catalog:find_tools", good, started, ", ".join(str(t["tool_id"]) for t in tools), shown)
        self.screen.more("from the built-in catalog; nothing of it is installed or run before a person says yes")

    async def _measure(self, client: Client[Any]) -> None:
        """Medians of warm calls, timed at the client."""
        self.screen.title(
            "Measured at the client, warm (the first find loads the index, a first invoke starts its server)"
        )
        call = {"tool_id": "time/get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}
        finds, invokes, answers = [], [], []
        for number in range(_REPEATS):
            started = time.perf_counter()
            answer, _, _ = await _call(client, "find_tools", {"query": _QUERIES[number % len(_QUERIES)]})
            finds.append((time.perf_counter() - started) * 1000)
            answers.append(_tokens(answer))
            started = time.perf_counter()
            _, text, failed = await _call(client, "invoke", call)
            invokes.append((time.perf_counter() - started) * 1000)
            if failed:
                raise UpstreamError(f"A repeated call failed: {text[:200]}")
        numbers = self.result.numbers
        numbers["find_ms_median"] = round(statistics.median(finds), 2)
        numbers["invoke_ms_median"] = round(statistics.median(invokes), 2)
        numbers["answer_tokens_median"] = statistics.median(answers)
        self.screen.line("find_tools", f"median of {_REPEATS}", numbers["find_ms_median"])
        self.screen.line(
            "invoke", f"median of {_REPEATS}, through to the upstream and back", numbers["invoke_ms_median"]
        )

    async def _again(self) -> None:
        """The start that a client sees from then on: what never changes is answered before anything is loaded."""
        client = self._client()
        started = time.perf_counter()
        async with asyncio.timeout(_SECONDS_A_STEP), client:
            tools = await client.list_tools()
            self.result.numbers["cold_start_ms"] = round((time.perf_counter() - started) * 1000, 1)
            good = [tool.name for tool in tools] == ["find_tools", "suggest_call", "invoke"]
            self._done("start:second start", good, started, "", "from the spawn to the answer of tools/list")

    # --- the three tools ---------------------------------------------------------------------------------------------

    async def _find(self, client: Client[Any], scene: str, query: str, expected: str) -> None:
        self.screen.more(f"the agent asks: {query}")
        started = time.perf_counter()
        answer, text, failed = await _call(client, "find_tools", {"query": query})
        ids = [tool["tool_id"] for tool in answer.get("tools", ())]
        good = not failed and expected in ids  # the agent reads all that it is offered
        right: dict[str, Any] = next((tool for tool in answer.get("tools", ()) if tool["tool_id"] == expected), {})
        rank = f", number {ids.index(expected) + 1} of {len(ids)}" if good and ids[0] != expected else ""
        shown = f"{expected}({right.get('signature', '')}){rank}" if good else ", ".join(ids) or _short(text)
        self._done(f"{scene}:find_tools", good, started, ", ".join(ids), _short(shown))

    async def _suggest(self, client: Client[Any], task: str, expected: str, right: dict[str, Any]) -> None:
        """Shown as it comes: a small model may write a wrong value or decline, which is said and not hidden.

        A call that is offered as ready must pass the server's own check (``dry_run``).
        """
        started = time.perf_counter()
        answer, text, failed = await _call(client, "suggest_call", {"task": task, "tool_ids": [expected]})
        calls = answer.get("calls") or []
        call: dict[str, Any] = calls[0] if calls else {}
        ready, missing = bool(call.get("ready")), ", ".join(call.get("missing") or ())
        by = f"written by {answer['model']}" if answer.get("model") else "no model is installed (toolscout model list)"
        if not call:
            good, shown = not failed and bool(answer.get("abstained")), answer.get("reason") or text
            remark = f"{by}: it declined, which is not an error"
        elif ready:
            check = {"tool_id": call["tool_id"], "arguments": call["arguments"], "dry_run": True}
            _, _, refused = await _call(client, "invoke", check)
            good, shown = call["tool_id"] == expected and not refused, json.dumps(call["arguments"], ensure_ascii=False)
            verdict = "and right" if call["arguments"] == right else "though a value is wrong: bigger models do better"
            remark = f"{by}: valid under the tool's schema, {verdict}"
        else:
            shown = json.dumps(call.get("skeleton") or call["arguments"], ensure_ascii=False)
            good = call["tool_id"] == expected and bool(missing)
            remark = f"{by}: not ready, and it says what is missing: {missing}"
        self._done("time:suggest_call", good, started, shown, _short(shown))
        self.screen.more(remark)

    async def _invoke(
        self,
        client: Client[Any],
        scene: str,
        tool_id: str,
        arguments: dict[str, Any],
        expected: list[str],
        show: Callable[[str], str],
    ) -> None:
        started = time.perf_counter()
        _, text, failed = await _call(client, "invoke", {"tool_id": tool_id, "arguments": arguments})
        good = not failed and all(part in text for part in expected)
        self._done(f"{scene}:invoke", good, started, text[:200], _short(show(text) if good else text))

    def _end(self) -> None:
        result, numbers = self.result, self.result.numbers
        if "find_ms_median" in numbers:
            self.screen.title("What the agent's context holds (tokens, counted as characters / 4)")
            tools, own = numbers["starter_definitions_tokens"], numbers["definitions_tokens"]
            answer = numbers["answer_tokens_median"]
            self.screen.plain(f"    without Toolscout  {tools:>7,.0f}  every tool of the three servers, always")
            self.screen.plain(
                f"    with Toolscout     {own:>7,.0f}  its three tools, and about {answer:,.0f} for each search"
            )
            verdict = "less" if own + answer < tools else "more"
            self.screen.plain(
                f"    With so few tools that is {verdict}; it stays {own:,.0f} when thousands of tools are behind it."
            )
        self.screen.plain("")
        if result.passed:
            self.screen.plain(f"Everything above really happened: {len(result.steps)} checks passed.")
            self.screen.plain("Next: toolscout import, then toolscout connect claude (or cursor, vscode, codex, ...).")
        else:
            failed = [step.name for step in result.steps if not step.passed]
            self.screen.plain(f"The demo failed{': ' + ', '.join(failed) if failed else ''}. Run: toolscout doctor")


def _pack_in_use() -> Path | None:
    """The pack that the user's own search would read, None where there is none: then that scene is left out."""
    from toolscout.index.encoder import make_encoder
    from toolscout.server.box import open_box

    own = Settings()
    box = open_box(own, make_encoder(own), None)
    return box.storage.pack.path if box is not None else None


async def _call(client: Client[Any], tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], str, bool]:
    """Structured answer, text and whether it is an error, of one call at the client."""
    async with asyncio.timeout(_SECONDS_A_STEP):
        result = await client.call_tool(tool, arguments, raise_on_error=False)
    text = "\n".join(str(getattr(block, "text", "")) for block in result.content)
    return result.structured_content or {}, text, result.is_error


def _tokens(value: Any) -> int:
    return -(-len(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) // _CHARACTERS_A_TOKEN)


def _short(text: str, most: int = 110) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def _around(text: str, word: str) -> str:
    sentence = next((s for s in re.split(r"(?<=[.!?])\s+|\n", text) if word in s), text)
    return f"“{sentence.strip()}”"


def _repository(folder: Path) -> Path:
    """A Git repository with three commits. Raises UpstreamError if git cannot make it."""
    git = shutil.which("git") or "git"
    folder.mkdir()
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.com",
        "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.com",
    }  # fmt: skip
    commands = [["init", "--quiet"]]
    for number, message in enumerate(_COMMITS):
        commands += [
            ["add", "."],
            ["commit", "--quiet", "--allow-empty", "-m", message, f"--date=2026-01-0{number + 1}T12:00:00Z"],
        ]
    for number, words in enumerate(commands):
        (folder / "greeting.txt").write_text(f"hello {number}\n")
        done = subprocess.run([git, *words], cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode:
            raise UpstreamError(f"git {words[0]} failed: {done.stderr.strip()[:200]}")
    return folder


@contextlib.contextmanager
def _website(folder: Path) -> Iterator[str]:
    """One page on a loopback port of its own; its URL."""
    folder.mkdir()
    (folder / "news.html").write_text(_PAGE, "utf-8")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, format: str, *args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/news.html"
        finally:
            server.shutdown()
            thread.join()
