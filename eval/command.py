"""Commands that take many files, and what all commands that measure have in common."""

from __future__ import annotations

import contextlib
import glob
import shutil
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from toolscout.errors import BadInput, Interrupted
from toolscout.eval.provenance import OUTPUTS, files_of, telling
from toolscout.eval.work_file import KEPT, work_place
from toolscout.files import check_writable

_FOLDERS = ("report", "out")
_WRITTEN = ("report.html", "result.json", "rows.jsonl", "misses.md", "tools.jsonl", "calls.jsonl")
"""What the folders of ``--report`` and ``--out`` get: no place for something else."""


class ManyFiles(TyperCommand):
    """A command without positional arguments whose file options take several values: ``--tools a.jsonl b.jsonl``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeats the option's name before each further value."""
        many = {name for p in self.params if getattr(p, "multiple", False) for name in p.opts}
        flags = {name for p in self.params if getattr(p, "is_flag", False) for name in (*p.opts, *p.secondary_opts)}
        spread: list[str] = []
        option, taken = "", 0
        for word in args:
            if word.startswith("-") and len(word) > 1:
                option, taken = word, 0
            elif option in many and option not in flags:
                if taken:
                    spread.append(option)
                taken += 1
            spread.append(word)
        return list(super().parse_args(ctx, spread))


class Measuring(ManyFiles):
    """A command of ``toolscout eval``: its results say what they are of, and an interruption what is left of it."""

    def invoke(self, ctx: Any) -> Any:
        """Refuses a place that cannot take the result before anything is measured, which may take hours.

        What a run keeps in its report's folder, for want of another place, goes when it is finished: a page is shared,
        and the same command shall measure anew.
        """
        names = {p.name: p.opts[0].lstrip("-") for p in self.params if p.name and p.opts}
        self._check(ctx.params, names)
        try:
            with telling(self.name or "", ctx.params, names):
                result = super().invoke(ctx)
        except KeyboardInterrupt:
            raise self._interrupted(ctx.params) from None
        # The search's own experiment keeps what it has where a peer failed, and clears it else.
        if self.name != "retrieval" and _place(ctx.params) is None and ctx.params.get("report") is not None:
            _clear(ctx.params["report"])
        return result

    def _check(self, params: dict[str, Any], names: dict[str, str]) -> None:
        taken: dict[Path, str] = {}
        report = params.get("report")
        read = {
            path.resolve(): f"--{names[name]}"
            for name, value in params.items()
            if name not in OUTPUTS
            for path in files_of(value)
        }
        for name in OUTPUTS:
            if params.get(name) is None:
                continue
            place, option = Path(params[name]), f"--{names[name]}"
            folder = name in _FOLDERS or (name == "work" and self.name == "execute")
            if folder and place.exists() and not place.is_dir():
                raise BadInput(f"{place} is a file.", f"Give {option} a folder.")
            if not folder and place.is_dir():
                raise BadInput(f"{place} is a folder.", f"Give {option} a file.")
            check_writable(place / "report.html" if folder else place, option, append=name == "work")
            whole = place.resolve()
            # A work file of the same run is read and written: what it is not, is refused there and left as it is.
            over = [whole] if name != "work" and not folder else []
            over += [whole / written for written in _WRITTEN] if name in _FOLDERS else []
            if clash := next((path for path in over if path in read), None):
                raise BadInput(
                    f"{option} would write over {clash.name}, which {read[clash]} reads.", "Give it another place."
                )
            if whole in taken:
                raise BadInput(f"{taken[whole]} and {option} are the same place.", "Give each its own.")
            if report is not None and whole.parent == Path(report).resolve() and whole.name in _WRITTEN:
                raise BadInput(f"--report writes {place} itself.", f"Give another place with {option}.")
            taken[whole] = option

    def _interrupted(self, params: dict[str, Any]) -> Interrupted:
        if "work" not in params:
            said = " beside the embeddings in --cache" if params.get("cache") is not None else ""
            return Interrupted(f"Interrupted. This command keeps nothing of a run that does not end{said}.")
        ending = "work" if self.name == "execute" else "rows.jsonl"
        place = work_place(params["work"], params.get("json_out"), params.get("report"), ending)
        if place is None:
            return Interrupted(
                "Interrupted. Nothing is kept of this run.", "With --json, --report or --work it goes on."
            )
        kept = next((path for path in _pieces(place) if _begun(path)), None)
        if kept is None:
            return Interrupted("Interrupted. Nothing was finished yet.")
        return Interrupted(f"Interrupted. What was finished is in {kept}.", "Run the same command again to go on.")


def _place(params: dict[str, Any]) -> Path | None:
    """Where somebody said, by ``--work`` or ``--json``, that a run is kept."""
    return work_place(params.get("work"), params.get("json_out"), None)


def _pieces(place: Path) -> list[Path]:
    """The place, and the files that a comparison's variants have beside it."""
    return [place, *sorted(place.parent.glob(f"{glob.escape(place.name)}.*.jsonl"))]


def _begun(path: Path) -> bool:
    """Whether there is more than a header."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            return _begun(path / "calls.jsonl")
        if path.is_file():
            with path.open("rb") as lines:
                return sum(1 for _, line in zip(range(2), lines, strict=False) if line.endswith(b"\n")) > 1
    return False


def _clear(report: Path) -> None:
    for ending in ("rows.jsonl*", "work", "vectors"):
        for path in report.glob(f"{KEPT}.{ending}"):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
