"""Commands that take many files, and what all commands that measure have in common."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from toolscout.errors import BadInput, Interrupted
from toolscout.eval.provenance import OUTPUTS, telling
from toolscout.eval.work_file import work_place
from toolscout.files import check_writable


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
        """Refuses a place that cannot take the result before anything is measured, which may take hours."""
        for name in OUTPUTS:
            if (place := ctx.params.get(name)) is not None:
                _check(name, Path(place))
        try:
            with telling(self.name or "", ctx.params):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _interrupted(ctx.params) from None


def _check(name: str, place: Path) -> None:
    option = "--json" if name == "json_out" else f"--{name.replace('_', '-')}"
    if name in ("report", "out"):
        if place.exists() and not place.is_dir():
            raise BadInput(f"{place} is a file.", f"Give {option} a folder.")
        check_writable(place / "report.html", option)
    elif place.is_dir() and name != "work":
        raise BadInput(f"{place} is a folder.", f"Give {option} a file.")
    else:
        check_writable(place, option)


def _interrupted(params: dict[str, Any]) -> Interrupted:
    if "work" not in params:
        return Interrupted("Interrupted. This command keeps nothing of a run that does not end.")
    where = params["work"], params.get("json_out"), params.get("report")
    places = [place for ending in ("rows.jsonl", "work") if (place := work_place(*where, ending)) is not None]
    if not places:
        return Interrupted("Interrupted. Nothing is kept of this run.", "With --json, --report or --work it goes on.")
    kept = [path for place in dict.fromkeys(places) for path in _written(place)]
    if not kept:
        return Interrupted("Interrupted. Nothing was finished yet.")
    return Interrupted(f"Interrupted. What was finished is in {kept[0]}.", "Run the same command again to go on.")


def _written(place: Path) -> list[Path]:
    """The place, or the files of a comparison beside it, as far as more than a header is in them."""
    if not place.parent.is_dir():
        return []
    found = sorted(p for p in place.parent.glob(f"{glob.escape(place.name)}*") if p.suffix != ".lock")
    return [p for p in found if (any(p.iterdir()) if p.is_dir() else p.read_bytes().count(b"\n") > 1)]
