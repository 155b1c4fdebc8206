"""Rows of BFCL and ACEBench as requests with gold calls.

BFCL (Berkeley Function Calling Leaderboard): a file of ``{id, question, function}`` and one of ``{id, ground_truth}``
whose values are lists of what is accepted; irrelevance rows have no answer. ACEBench (arXiv 2501.12851): the same keys,
``question`` a text that begins with ``user:``, one right value each; its irrelevant rows' answer is a sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolscout.errors import BadInput
from toolscout.eval.adopt.schema import Tools
from toolscout.jsonl import read_objects
from toolscout.records import Call, GoldCall, JsonObject, Tool

Format = Literal["bfcl", "acebench"]

_SOURCE_TEXT = re.compile(r"(^|_)(java|javascript)_\d")
_UNCHANGED = "Give the benchmark's own file, unchanged."


@dataclass
class Adopted:
    """``left_out`` counts the rows that are not single requests with checkable calls, by the reason."""

    tools: list[Tool]
    calls: list[Call]
    left_out: Counter[str] = field(default_factory=Counter)


class _LeftOut(Exception):
    """The reason as its text."""


def adopt(kind: Format, questions: Sequence[Path], answers: Sequence[Path]) -> Adopted:
    """Read a benchmark's files. Raises BadInput for a file that is none of this benchmark, or two rows of one id."""
    found = _answers(answers)
    tools = Tools(kind)
    calls: list[Call] = []
    seen: set[str] = set()
    left_out: Counter[str] = Counter()
    for path in questions:
        for line, row in read_objects(path):
            place = f"{path}, line {line},"
            row_id = row.get("id")
            functions = row.get("function")
            if not isinstance(row_id, str) or "question" not in row:
                raise BadInput(f"{place} has no id and question, as {kind} has.", _UNCHANGED)
            if row_id in seen:
                raise BadInput(f"{place} repeats the id {row_id}.", "Name each file once.")
            seen.add(row_id)
            try:
                if _SOURCE_TEXT.search(row_id):
                    raise _LeftOut("values are source text of another language")
                if not isinstance(functions, list) or not functions:
                    raise _LeftOut("no functions")
                query = _query(kind, row["question"])
                gold = _gold(kind, row_id, found)
                names = {f.get("name") for f in functions if isinstance(f, dict)}
                gold = [(_called(name, names), arguments) for name, arguments in gold]
                if {name for name, _ in gold} - names:
                    raise _LeftOut("answer names no function of the row")
            except _LeftOut as reason:
                left_out[str(reason)] += 1
                continue
            offered = {tool.name: tool.tool_id for tool in (tools.add(f, place) for f in functions)}
            row_call = Call(
                id=row_id,
                query=query,
                gold=[_gold_call(kind, offered[name], arguments) for name, arguments in gold],
                candidates=list(dict.fromkeys(offered.values())),
                split=path.name.split(".")[0],
                source=kind,
            )
            calls.append(row_call)
    if not calls and not left_out:
        raise BadInput("The files of questions have no rows.", _UNCHANGED)
    return Adopted(tools.tools, calls, left_out)


def _answers(paths: Sequence[Path]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in paths:
        for line, row in read_objects(path):
            if not isinstance(row.get("id"), str) or "ground_truth" not in row:
                raise BadInput(f"{path}, line {line}, has no id and ground_truth.", _UNCHANGED)
            found[row["id"]] = row["ground_truth"]
    return found


def _query(kind: Format, question: Any) -> str:
    if kind == "acebench":
        if not isinstance(question, str):
            raise _LeftOut("question is no text")
        turns = question.strip()
        if "\nsystem:" in turns or turns.count("user:") > 1:
            raise _LeftOut("several turns")
        return turns.removeprefix("user:").strip()
    if not isinstance(question, list) or not all(isinstance(turn, list) for turn in question):
        raise _LeftOut("question is no list of turns")
    if len(question) != 1:
        raise _LeftOut("several turns")
    said = [m for m in question[0] if isinstance(m, dict) and isinstance(m.get("content"), str)]
    if any(m.get("role") == "assistant" for m in said):
        raise _LeftOut("several turns")
    text = "\n".join(m["content"] for m in said).strip()
    if not text:
        raise _LeftOut("question is empty")
    return text


def _gold(kind: Format, row_id: str, answers: dict[str, Any]) -> list[tuple[str, JsonObject]]:
    """Names and arguments of the gold calls; empty where the row says that no function serves."""
    irrelevant = "irrelevan" in row_id
    if row_id not in answers:
        if irrelevant:
            return []
        raise _LeftOut("no answer for the row")
    truth = answers[row_id]
    if irrelevant and not isinstance(truth, dict | list):
        return []
    parts = truth if isinstance(truth, list) else [truth]
    gold: list[tuple[str, JsonObject]] = []
    for part in parts:
        if not isinstance(part, dict):
            raise _LeftOut("answer is no call")
        for name, arguments in part.items():
            if not isinstance(arguments, dict):
                raise _LeftOut("answer is no call")
            if kind == "bfcl" and not all(isinstance(values, list) and values for values in arguments.values()):
                raise _LeftOut("answer without lists of accepted values")
            gold.append((name, arguments))
    if not gold and not irrelevant:
        raise _LeftOut("answer is no call")
    return gold


def _called(name: str, names: set[Any]) -> str:
    """The function of an answer: where one is called several times, ACEBench numbers the calls (``f_1``, ``f_2``)."""
    plain = re.sub(r"_\d+$", "", name)
    return plain if name not in names and plain in names else name


def _gold_call(kind: Format, tool_id: str, arguments: JsonObject) -> GoldCall:
    if kind == "acebench":
        return GoldCall(tool_id=tool_id, arguments=arguments)
    stated = {name: _plain(values[0]) for name, values in arguments.items() if values[0] != ""}
    return GoldCall(tool_id=tool_id, arguments=stated, accept=arguments)


def _plain(value: Any) -> Any:
    """The first accepted form of a value: objects within BFCL's answers hold lists of accepted values themselves."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        lists = all(isinstance(values, list) and values for values in value.values())
        if lists:
            return {name: _plain(values[0]) for name, values in value.items() if values[0] != ""}
        return {name: _plain(item) for name, item in value.items()}
    return value
