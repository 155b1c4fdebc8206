"""The requests that come with Toolscout for `eval execute`: readable, and what they ask and check is something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolscout.eval.execute.expect import ExecuteRow
from toolscout.eval.execute.measure import read_rows
from toolscout.responses import Response
from toolscout.synth.trajectories.run import StepRun

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "eval" / "data").glob("execute_*.jsonl"))


def rows() -> list[ExecuteRow]:
    return read_rows(FILES)


def test_there_are_requests() -> None:
    assert len(FILES) == 2
    ids = [row.id for row in rows()]
    assert len(ids) == len(set(ids)) == 69


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_no_outcome_holds_for_a_tool_that_repeats_the_request(row: ExecuteRow) -> None:
    parrot = [
        StepRun(id=call.id, tool_id=call.tool_id, response=Response(text=f"{row.query} {call.arguments}"))
        for call in row.own_calls()
    ]
    assert row.expect and not all(check.holds(parrot) for check in row.expect)


def test_the_packages_that_are_asked_are_those_that_are_added() -> None:
    script = (ROOT / "runs" / "packages.sh").read_text("utf-8")
    added = set(re.findall(r"^add (?:npm|pypi):(\S+) [\d.]+", script, re.MULTILINE))
    asked = {call.tool_id.rpartition("/")[0] for row in rows() if row.source == "packages" for call in row.gold}
    assert asked == added
