"""Every field of a report's ``rows.jsonl`` is in docs/EVALUATION.md, in the section of its command."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from toolscout.eval.agent.loop import Made
from toolscout.eval.agent.trials import Trial
from toolscout.eval.execute.calls import Made as MadeCalls
from toolscout.eval.execute.judge import Trial as Executed
from toolscout.eval.execute.measure import ExecuteRow, ExecuteRun, report_row
from toolscout.eval.plans.run import Given
from toolscout.eval.plans.score import Overlap, Verdict
from toolscout.synth.trajectories.run import StepRun

PAGE = (Path(__file__).parents[1] / "docs" / "EVALUATION.md").read_text("utf-8")


def names(*records: type) -> set[str]:
    return {field.name for record in records for field in fields(record)}


def of_execution() -> set[str]:
    step = StepRun(id="1", tool_id="a/b")
    trial = Executed("r", 1, "all", steps=[step])
    row = ExecuteRow(id="r", query="q", gold=[])
    found = report_row(ExecuteRun({}, {"r": row}, [trial], {("r", 1): MadeCalls(id="r")}), trial)
    return {*found, *StepRun.model_fields, "answer"} - {"response"}  # which is cut to the answer


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("Agent", names(Trial, Made)),
        ("Plans", names(Given, Verdict, Overlap) | {"query"}),
        ("Execution", of_execution()),
    ],
)
def test_fields_are_told(section: str, wanted: set[str]) -> None:
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    told = next(part for part in text.split("\n\n") if part.startswith("`rows.jsonl`"))
    missing = {name for name in wanted if not re.search(rf"(?<!\w){name}(?!\w)", told)}
    assert not missing
