"""The rivals' side of `toolscout.eval.peers.command`: JSON lines in, JSON lines out. Standard library only.

A driver calls ``serve(build)``. ``build(tools)`` indexes the tools and returns what it was (one line for the report)
and ``search(query, limit, offered) -> (tool ids, best first; the text shown to a model for the first ``offered``, or
None)``. Only the search itself is timed; the text is asked for apart with `later`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Tool = dict[str, Any]
Found = tuple[list[str], Callable[[], str | None]]
Search = Callable[[str, int, int], Found]
Embed = Callable[[list[str]], list[Any]]
Build = Callable[[list[Tool]], tuple[str, Search]]


def serve(build: Build) -> None:
    """Answer questions until standard input ends. What the library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    tools: list[Tool] = []
    search: Search | None = None
    for line in sys.stdin:
        question = json.loads(line)
        if question["op"] == "tool":
            tools.append(question["tool"])
            continue
        start = time.perf_counter()
        try:
            if question["op"] == "index":
                about, search = build(tools)
                answer: dict[str, Any] = {"about": about, "seconds": time.perf_counter() - start}
            elif search is None:
                answer = {"error": "a search before the tools were indexed"}
            else:
                ranked, text = search(question["query"], question["limit"], question["offered"])
                answer = {"ranked": ranked, "seconds": time.perf_counter() - start, "answer": text()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def unique_names(tools: list[Tool]) -> dict[str, Tool]:
    """Tools by a name that no other has and that MCP allows, for libraries that know a tool by its name alone: the
    server's name, then the tool's, as a gateway has it that prefixes names."""
    named: dict[str, Tool] = {}
    for tool in tools:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", tool["tool_id"])[-120:]
        name, number = plain, 2
        while name in named:
            name, number = f"{plain}_{number}", number + 1
        named[name] = tool
    return named


def by_server(tools: list[Tool]) -> dict[str, list[Tool]]:
    """Tools by the id of their server."""
    found: dict[str, list[Tool]] = {}
    for tool in tools:
        found.setdefault(tool["server"]["server_id"], []).append(tool)
    return found


def remembered(
    embed: Callable[[list[str]], list[Any]], cache: str | None, name: str
) -> Callable[[list[str]], list[Any]]:
    """``embed``, keeping its vectors in the folder ``cache`` so that a later run need not compute them. ``name`` tells
    models apart. Without a folder, ``embed`` itself."""
    if cache is None:
        return embed
    import hashlib
    import sqlite3

    import numpy as np

    Path(cache).mkdir(parents=True, exist_ok=True)
    store = sqlite3.connect(Path(cache) / f"{name}.sqlite")
    store.execute("CREATE TABLE IF NOT EXISTS vectors (text TEXT PRIMARY KEY, vector BLOB NOT NULL)")

    def key(text: str) -> str:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def one_by_one(texts: list[str]) -> list[Any]:
        vectors = []
        for number, text in enumerate(texts):
            row = store.execute("SELECT vector FROM vectors WHERE text = ?", (key(text),)).fetchone()
            if row is None:
                vector = np.asarray(embed([text])[0], dtype=np.float32)
                store.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (key(text), vector.tobytes()))
                if number % 64 == 0:
                    store.commit()
            else:
                vector = np.frombuffer(row[0], dtype=np.float32)
            vectors.append(vector)
        store.commit()
        return vectors

    return one_by_one
