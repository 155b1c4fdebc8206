"""One trial of the agent experiment: what was done, whether the end state holds, and what kind of failure it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from toolscout.eval.agent.loop import Doing, Made
from toolscout.eval.agent.tasks import Task
from toolscout.eval.work_file import earlier
from toolscout.records import JsonObject

FAILURES = (*("turns", "time", "refused", "confused", "no call", "damage", "tool errors", "end state", "answer"),)
"""In the order in which they are told apart: what stopped the agent first, then what it left behind."""

Key = tuple[str, str, int, str]


@dataclass
class Trial:
    """One trial. ``asked`` changes with the task; ``wrong`` is what does not hold; ``failure`` is of `FAILURES`."""

    id: str
    arm: str
    trial: int
    asked: str
    passed: bool
    failure: str = ""
    wrong: list[str] = field(default_factory=list)
    split: str = ""
    answer: str = ""
    calls: list[JsonObject] = field(default_factory=list)
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    bootstrap: str = ""
    detail: str = ""

    @classmethod
    def of(cls, task: Task, arm: str, trial: int, asked: str, doing: Doing, wrong: Sequence[str]) -> Trial:
        """The trial of what was done. An end state that holds is a success, whatever stopped the agent after it."""
        return cls(
            task.id, arm, trial, asked, not wrong, failure_of(doing, wrong), list(wrong), task.split, doing.answer,
            [asdict(made) for made in doing.calls], doing.turns, doing.prompt_tokens, doing.completion_tokens,
            doing.seconds, doing.bootstrap, doing.detail,
        )  # fmt: skip

    @property
    def key(self) -> Key:
        """What it is the trial of."""
        return (self.id, self.arm, self.trial, self.asked)

    @property
    def steps(self) -> int:
        """Tool calls made, failed ones and those of the bootstrap included."""
        return len(self.calls)


def failure_of(doing: Doing, wrong: Sequence[str]) -> str:
    """The kind of failure, of `FAILURES`; empty for a success."""
    if not wrong:
        return ""
    if doing.stopped:
        return doing.stopped
    real = [made for made in doing.calls if not made.tool.startswith("toolscout/")]
    if not real:
        return "no call"
    if any(line.startswith("unchanged:") for line in wrong):
        return "damage"
    if _broken(real):
        return "tool errors"
    return "answer" if all(line.startswith("answer") for line in wrong) else "end state"


def _broken(calls: Sequence[Made]) -> bool:
    """Whether the last call failed: the agent gave up after an error."""
    return not calls[-1].ok


def resume(work: Path, header: JsonObject) -> dict[Key, Trial]:
    """Trials of an earlier run; what a crash cut off is dropped and done again.

    Raises BadInput for a file of another run.
    """
    lines = earlier(work, header, "the trials of another run (other model, limits, servers, or settings of Toolscout)")
    names = set(Trial.__dataclass_fields__)
    found = [Trial(**{k: v for k, v in line.items() if k in names}) for line in lines if "asked" in line]
    return {trial.key: trial for trial in found}
