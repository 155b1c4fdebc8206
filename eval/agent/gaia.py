"""GAIA's file, read from where the user has it, and its scoring: the answer's exact match after normalising.

Mialon et al. 2023 (arXiv 2311.12983): an answer is a number, a few words, or a list of either, and is compared with
the truth after what does not matter is taken away. The set is gated: nothing of it is in this repository.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator

from toolscout.errors import BadInput, NotFound
from toolscout.eval.agent.check import said
from toolscout.jsonl import parse_record, read_objects
from toolscout.records import Record

_SIGNS = str.maketrans("", "", "$%,")
_BREAK = re.compile(r"[,;]")
_NOT_WORDS = re.compile(r"[\W_]+")


class GaiaTask(Record):
    """One row: ``file_name`` names a file beside the JSON Lines file, or is empty."""

    task_id: str
    question: str = Field(alias="Question")
    level: str = Field(default="", alias="Level")
    truth: str = Field(alias="Final answer")
    file_name: str = ""

    @field_validator("level", "truth", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value) if isinstance(value, int | float) else value


def read_gaia(path: Path) -> list[GaiaTask]:
    """The rows that have an answer. Raises NotFound or BadInput for a file that is none of GAIA's.

    The test part holds ``?`` for the answers: its rows cannot be scored here.
    """
    if not path.is_file():
        raise NotFound(f"There is no file {path}.", "Name GAIA's metadata.jsonl with --gaia.")
    rows: list[GaiaTask] = []
    for number, found in read_objects(path):
        # Their file has "Final answer", mirrors of it "Final Answer" too.
        if "Final answer" not in found and "Final Answer" in found:
            found["Final answer"] = found["Final Answer"]
        if isinstance(found.get("Final answer"), str) and found["Final answer"].strip() in ("", "?"):
            continue
        rows.append(parse_record(found, GaiaTask, f"{path}:{number}"))
    if not rows:
        raise BadInput(f"{path} has no row with an answer.", "Only the validation part can be scored here.")
    if len({row.task_id for row in rows}) < len(rows):
        raise BadInput(f"{path} holds a task_id twice.", "Task ids must be unique.")
    for row in rows:
        if row.file_name and not (path.parent / Path(row.file_name).name).is_file():
            raise NotFound(f"The file {row.file_name} of the task {row.task_id} is not beside {path.name}.")
    return rows


def right(answer: str, truth: str) -> bool:
    """Whether the answer in a model's text is the truth, by the paper's rule.

    What the truth is decides: a plain number is compared as a number (signs of money, per cent and thousands in the
    answer aside); anything else with a comma or semicolon is a list, compared item by item in order; the rest as words
    without case, space and punctuation. So "1,234" as a truth is a list of two, and only "1,234" is right.
    """
    given, wanted = said(answer), truth.strip()
    number = _number(wanted)
    if number is not None:
        return _number(given.translate(_SIGNS)) == number
    if not _BREAK.search(wanted):
        return _words(given) == _words(wanted)
    parts, truths = _BREAK.split(given), _BREAK.split(wanted)
    return len(parts) == len(truths) and all(_item(a, b) for a, b in zip(parts, truths, strict=True))


def _item(answer: str, truth: str) -> bool:
    """An item of a list; of words the punctuation counts here, as it may be all that tells items apart (3.1, 31)."""
    number = _number(truth)
    if number is not None:
        return _number(answer.translate(_SIGNS)) == number
    return "".join(answer.casefold().split()) == "".join(truth.casefold().split())


def _number(text: str) -> float | None:
    """The number that a text is as it stands, None if it is none."""
    bare = text.strip()
    return float(bare) if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", bare, re.IGNORECASE) else None


def _words(text: str) -> str:
    """Letters and digits alone, in one case; where there are none, the text itself."""
    return _NOT_WORDS.sub("", text.casefold()) or text.strip()
