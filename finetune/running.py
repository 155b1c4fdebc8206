"""What all runs have in common that transformers' trainers make: a folder that knows its run, progress, an early end.

run.json        what decides the run: options, hashes of files and models
checkpoints/    the same command goes on from the last one
train.json      numbers of the finished run
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, StorageError
from toolscout.files import write_json
from toolscout.records import JsonObject

Say = Callable[[str], None]
Tick = Callable[[float, float | None], None]
"""Takes steps done and steps to do."""


@dataclass(frozen=True)
class Running:
    """How a run is run: none of it changes the result. ``stop_at`` and ``minutes`` end it early with a checkpoint."""

    threads: int = 0
    save_steps: int = 50
    stop_at: int = 0
    minutes: float = 0.0
    command: str = ""


def run_in(out: Path, identity: JsonObject, train: Callable[[], JsonObject], say: Say) -> JsonObject:
    """What ``train`` gives, in a folder that holds this run or nothing; of a finished run what ``train.json`` says.

    Raises BadInput when ``out`` holds another run, StorageError when it cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if speaks():
            _same_run(out, identity)
        if (out / "train.json").is_file():
            say(f"{out} is finished; nothing to do")
            return dict(json.loads((out / "train.json").read_text("utf-8")))
        return train()
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error}.", "Check the folder and the free space.") from None


def speaks() -> bool:
    """Whether this process writes and speaks: under accelerate one of several does."""
    return os.environ.get("RANK", "0") == "0"


def _same_run(out: Path, identity: JsonObject) -> None:
    path = out / "run.json"
    if not path.is_file():
        if any(out.iterdir()):
            raise BadInput(f"{out} is not empty and holds no training run.", "Choose another --out.")
        write_json(path, identity)
        return
    try:
        before = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise BadInput(f"{path} cannot be read.", "Choose another --out.") from None
    different = sorted(key for key in identity | before if before.get(key) != identity.get(key))
    if different:
        raise BadInput(
            f"{out} holds a run with other {', '.join(different)}.",
            "Choose another --out, or repeat that run's options.",
        )


class Progress:
    """Tells how a training goes, and ends it early where ``running`` says so."""

    def __init__(self, running: Running, say: Say, tick: Tick) -> None:
        self.running, self.say, self.tick = running, say, tick
        self.started, self.first, self.now = time.monotonic(), 0, 0

    def seconds_a_step(self) -> float:
        """Mean of the steps of this start."""
        return round((time.monotonic() - self.started) / max(1, self.now - self.first), 3)

    def begun(self, state: Any) -> None:
        """The trainer begins, perhaps with a checkpoint's ``state``."""
        self.started, self.first, self.now = time.monotonic(), state.global_step, state.global_step

    def step_done(self, state: Any) -> bool:
        """Whether the run ends here."""
        self.now = state.global_step
        self.tick(self.now, state.max_steps)
        late = self.running.minutes and time.monotonic() - self.started >= 60 * self.running.minutes
        return bool((self.running.stop_at and self.now >= self.running.stop_at) or late)

    def logged(self, state: Any, logs: Mapping[str, Any]) -> None:
        """The trainer logs its numbers."""
        if "loss" in logs:
            line = f"step {state.global_step} of {state.max_steps}: loss {float(logs['loss']):.3f}"
            self.say(f"{line}, {self.seconds_a_step():.2f} s a step")


def follow(trainer: Any, progress: Progress) -> None:
    """Have the trainer tell ``progress`` of its steps, and print nothing itself."""
    from transformers import PrinterCallback, TrainerCallback

    class Following(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            progress.begun(state)

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if progress.step_done(state):
                control.should_save = control.should_training_stop = True

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            progress.logged(state, logs or {})

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Following())


def train_on(trainer: Any, out: Path, plan: str, say: Say) -> JsonObject:
    """Train from the last checkpoint on. Gives the first part of the run's numbers: ``finished``, ``steps``, ``of`` and
    ``device``."""
    import torch

    gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if gpu else f"CPU, threads: {torch.get_num_threads()}"
    last = last_checkpoint(out / "checkpoints")
    say(f"{plan} on {device}" + (f", from {last.name}" if last else ""))
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    done, total = int(trainer.state.global_step), int(trainer.args.max_steps)
    if done < total:
        say(f"stopped at step {done} of {total}; the same command goes on")
    return {"finished": done >= total, "steps": done, "of": total, "device": device}


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: the trainer writes its state last."""
    whole = [p for p in folder.glob("checkpoint-*") if (p / "trainer_state.json").is_file()]
    return max(whole, key=lambda p: int(p.name.rpartition("-")[2]), default=None)


def logged_losses(history: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Step and training loss, as the trainer logged them."""
    return [(int(h["step"]), round(float(h["loss"]), 4)) for h in history if "loss" in h]
