"""Peers that are programs of their own: another language's, or a library that must not share our environment.

The program reads JSON lines from standard input and answers on standard output, one line a question:

    {"op": "tool", "tool": {"tool_id", "name", "title", "description", "input_schema",
                            "server": {"server_id", "name", "description"}}}          once a tool, no answer
    {"op": "index"}                                  -> {"about": TEXT, "seconds": S}
    {"op": "search", "query": TEXT, "limit": 50, "offered": 5}
                                                     -> {"ranked": [tool_id, ...], "seconds": S, "answer": TEXT or null}

``seconds`` are the search's own, without the pipe; ``answer`` is what the peer would say to a model, cut to the first
``offered`` tools, or null where it defines no such text. ``{"error": TEXT}`` instead of an answer ends the peer. It
gets no environment but a search path, a home and one thread, so no secret of ours; its standard error is kept for the
error message. ``benchmarks/rivals/`` has such programs.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from typing import IO, Any

from toolscout.errors import ModelError
from toolscout.eval.peers.base import OFFERED, RANK_DEPTH, UNNAMED, PeerTask, RankedPeer
from toolscout.records import JsonObject, Tool

INDEX_SECONDS = 3600
"""Building may take this long: some encode the pool on one thread."""

SEARCH_SECONDS = 120

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


class PeerFailed(ModelError):
    """A peer's program did not do its part; the others are measured all the same."""


def ask_command(task: PeerTask, name: str, command: str) -> RankedPeer:
    """Hand the tools over, then ask every row. Raises PeerFailed when the program ends, stalls or says so."""
    with _Program(name, command) as program:
        for tool in task.tools.values():
            program.tell({"op": "tool", "tool": _described(tool, task)})
        ready = program.ask({"op": "index"}, INDEX_SECONDS)
        peer = RankedPeer(str(ready.get("about") or UNNAMED), index_seconds=float(ready.get("seconds") or 0.0))
        program.search("warm up")
        for number, row in enumerate(task.rows, start=1):
            answer = program.search(row.query)
            peer.ms.append(float(answer["seconds"]) * 1000)
            peer.ranked[row.id] = [i for i in dict.fromkeys(map(str, answer["ranked"])) if i in task.tools][:RANK_DEPTH]
            if isinstance(answer.get("answer"), str):
                peer.answer_tokens.append(float(task.count_tokens(answer["answer"])))
            if number % 100 == 0:
                task.say(f"asked {name} {number} of {len(task.rows)}")
    return peer


def _described(tool: Tool, task: PeerTask) -> JsonObject:
    server = task.server_of(tool)
    return {
        "tool_id": tool.tool_id,
        "name": tool.name,
        "title": tool.title or "",
        "description": tool.description,
        "input_schema": tool.input_schema,
        "server": {
            "server_id": tool.server_id,
            "name": (server.name if server is not None else "") or tool.server_id,
            "description": server.description if server is not None else "",
        },
    }


class _Program:
    """The running program: lines in, answers out within their time."""

    def __init__(self, name: str, command: str) -> None:
        self._name = name
        self._words = shlex.split(command)
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> _Program:
        environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ} | _ONE_THREAD
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise PeerFailed(f"The peer {self._name} cannot be started: {error}.") from None
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self._kill()
        self._errors.close()

    def _kill(self) -> None:
        """End the program and what it started: it may be a wrapper that only changes the user."""
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def tell(self, message: JsonObject) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            if message["op"] != "tool":
                self._process.stdin.flush()
        except OSError:
            raise self._failed("ended") from None

    def ask(self, message: JsonObject, seconds: float) -> dict[str, Any]:
        """Send one line and wait for its answer."""
        self.tell(message)
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise self._failed(f"gave no answer within {seconds:.0f} s") from None
        if line is None:
            raise self._failed("ended")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._failed(f"answered with what is no JSON object: {line[:80]!r}")
        if "error" in answer:
            raise self._failed(f"says: {answer['error']}")
        return answer

    def search(self, query: str) -> dict[str, Any]:
        """One search; the answer has a list of ids and the seconds it took."""
        answer = self.ask({"op": "search", "query": query, "limit": RANK_DEPTH, "offered": OFFERED}, SEARCH_SECONDS)
        if not isinstance(answer.get("ranked"), list) or not isinstance(answer.get("seconds"), (int, float)):
            raise self._failed("answered a search without 'ranked' and 'seconds'")
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip():
                self._answers.put(line.decode("utf-8", "replace"))
        self._answers.put(None)

    def _failed(self, what: str) -> PeerFailed:
        if "ended" in what:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._kill()
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        last = f" Its last words: {lines[-1][:300]}" if lines else ""
        return PeerFailed(f"The program of the peer {self._name} {what}.{last}")
