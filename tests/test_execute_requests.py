"""The requests that come with Toolscout for `eval execute`: readable, and what they ask and check is something."""

from __future__ import annotations

import json
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
    assert len(FILES) == 3
    ids = [row.id for row in rows()]
    assert len(ids) == len(set(ids)) == 153


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_no_outcome_holds_for_a_tool_that_repeats_the_request(row: ExecuteRow) -> None:
    parrot = [
        StepRun(id=call.id, tool_id=call.tool_id, response=Response(text=f"{row.query} {call.arguments}"))
        for call in row.own_calls()
    ]
    assert row.expect and not all(check.holds(parrot) for check in row.expect)


@pytest.mark.parametrize(("script", "source"), [("packages.sh", "packages"), ("similar.sh", "similar")])
def test_the_packages_that_are_asked_are_those_that_are_added(script: str, source: str) -> None:
    text = (ROOT / "runs" / script).read_text("utf-8")
    added = set(re.findall(r"^add (?:npm|pypi):(\S+) [\d.]+", text, re.MULTILINE))
    asked = {call.tool_id.rpartition("/")[0] for row in rows() if row.source == source for call in row.gold}
    assert asked == added


def test_similar_servers_are_asked_the_same() -> None:
    """Each request goes to every server of its group, in the same words and with the same expectation."""
    asked: dict[str, list[ExecuteRow]] = {}
    for row in rows():
        if row.source == "similar":
            asked.setdefault("-".join(row.id.split("-")[:2]), []).append(row)
    groups: dict[str, set[frozenset[str]]] = {}
    for name, same in asked.items():
        assert len({row.query for row in same}) == 1 and len({str(row.expect) for row in same}) == 1, name
        servers = [call.tool_id.rpartition("/")[0] for row in same for call in row.gold[:1]]
        assert len(servers) == len(set(servers)) == len(same), name
        groups.setdefault(name.partition("-")[0], set()).add(frozenset(servers))
    assert {name: len(found) for name, found in groups.items()} == {"clocks": 1, "sums": 1}
    text = (ROOT / "runs" / "similar.sh").read_text("utf-8")
    stated = json.loads(re.search(r"<<'JSON'\n(.*?)\nJSON\n", text, re.DOTALL)[1])  # type: ignore[index]
    assert {name: {frozenset(ids)} for name, ids in stated.items()} == groups
