"""``toolscout eval adopt``: see docs/EVALUATION.md, Files of other benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from toolscout.errors import BadInput


def adopt(
    kind: Annotated[str, typer.Argument(metavar="FORMAT", help="bfcl or acebench.")],
    questions: Annotated[list[Path], typer.Option(help="The benchmark's files of questions. Several may follow.")],
    out: Annotated[Path, typer.Option(help="Folder for tools.jsonl and calls.jsonl.")],
    answers: Annotated[
        list[Path] | None, typer.Option(help="Its files of answers (possible_answer). Several may follow.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No remarks.")] = False,
) -> None:
    """Read the files of another benchmark (BFCL, ACEBench) into tools and requests that the other commands take."""
    from toolscout.eval.adopt.read import Format
    from toolscout.eval.adopt.read import adopt as read
    from toolscout.eval.cli import _say
    from toolscout.jsonl import write_records

    formats: tuple[Literal["bfcl", "acebench"], ...] = get_args(Format)
    chosen = next((known for known in formats if known == kind), None)
    if chosen is None:
        raise BadInput(f"There is no format {kind}.", f"Name one of these: {', '.join(formats)}.")
    found = read(chosen, questions, answers or [])
    say = _say(quiet)
    for reason, count in found.left_out.most_common():
        say(f"left out, {reason}: {count}")
    if not found.calls:
        raise BadInput(
            "No row is a single request with checkable calls.", "Name files of this format, and their --answers."
        )
    write_records(out / "tools.jsonl", found.tools)
    write_records(out / "calls.jsonl", found.calls)
    none = sum(not call.gold for call in found.calls)
    say(f"{out}: {len(found.tools)} tools, {len(found.calls)} requests, {none} of them that no function serves")
