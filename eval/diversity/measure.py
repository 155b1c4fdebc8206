"""Sets of requests compared by how various they are, as MCP-Flow (arXiv 2510.24284) compares instruction sets.

Sample, distance and facts are those of the report of a synthesis run; docs/EVALUATION.md defines each number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from toolscout.errors import BadInput
from toolscout.eval.rows import Say, silent
from toolscout.index.encoder import Encoder
from toolscout.records import JsonObject
from toolscout.synth.filters.duplicates import NearCopies
from toolscout.synth.report_facts import SAMPLE, Sample, mean_distance, sample_of
from toolscout.synth.report_page import Spread
from toolscout.synth.report_plots import Plane, planes
from toolscout.synth.report_rows import Row, rows_of_file

NEAR_FROM = 0.8
"""Likeness (Jaccard, of character 5-grams) from which two requests are near copies."""


@dataclass
class DiversityRun:
    """``result`` is what ``--json`` writes. ``planes`` have a point for each row of each sample, in the sets' order."""

    result: JsonObject
    samples: dict[str, Sample]
    planes: list[Plane] = field(default_factory=list)
    rows: list[JsonObject] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def parse_sets(pairs: Sequence[str]) -> dict[str, list[Path]]:
    """Files by the name of their set, from ``NAME=FILE`` pairs; a name that comes again adds a file to its set.

    Raises BadInput for a pair that is none.
    """
    sets: dict[str, list[Path]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not name or not equals or not path:
            raise BadInput(
                f"--calls {pair} is not NAME=FILE.", "For example: --calls ours=calls.jsonl theirs=other.jsonl"
            )
        sets.setdefault(name, []).append(Path(path))
    return sets


def measure_diversity(
    sets: Mapping[str, Sequence[Path]],
    encoder: Encoder,
    *,
    encoder_name: str = "default",
    near_from: float = NEAR_FROM,
    plots: bool = False,
    say: Say = silent,
) -> DiversityRun:
    """Draw a sample of each set and measure it. ``plots``: also lay all samples on one plane, by each method there is.

    Raises NotFound and BadInput for files that cannot be read or hold no request.
    """
    samples: dict[str, Sample] = {}
    parts: list[JsonObject] = []
    lines: list[JsonObject] = []
    warnings: list[str] = []
    for name, paths in sets.items():
        rows = [row for path in paths for row in _named(path)]
        if not rows:
            raise BadInput(f"The files of {name} hold no request.", "Give files of calls with --calls NAME=FILE.")
        say(f"{name}: {min(SAMPLE, len(rows)):,} of {len(rows):,} requests")
        if len(rows) < SAMPLE:
            warnings.append(
                f"{name} has {len(rows):,} requests: all are taken, where {SAMPLE:,} would be drawn of more."
            )
        samples[name] = sample = sample_of(rows, encoder)
        copies = near_copies(sample.rows, near_from)
        parts.append(_part(name, rows, sample, copies))
        lines += [_line(name, row, copies.get(at)) for at, row in enumerate(sample.rows)]
    result: JsonObject = {
        "experiment": "diversity", "sample": SAMPLE, "near_from": near_from, "encoder": encoder_name, "sets": parts,
        "warnings": warnings,
    }  # fmt: skip
    run = DiversityRun(result, samples, rows=lines, warnings=warnings)
    if plots:
        say("laying the requests on a plane")
        run.planes = planes(np.concatenate([sample.vectors for sample in samples.values()]))
        result["plots"] = {plane.name: plane.why_not or "drawn" for plane in run.planes}
    return run


def near_copies(rows: Sequence[Row], near_from: float) -> dict[int, tuple[int, float]]:
    """(place of the most similar row before it, likeness) of each row, by its place, that is so near to one."""
    seen, found = NearCopies(), {}
    for at, row in enumerate(rows):
        name, likeness = seen.nearest(row.text)
        if name and likeness >= near_from:
            found[at] = (int(name), round(likeness, 3))
        seen.add(str(at), row.text)
    return found


def _part(name: str, rows: Sequence[Row], sample: Sample, copies: Mapping[int, object]) -> JsonObject:
    of_sample = Spread(name, sample.rows, len(sample.rows), mean_distance(sample.vectors)).to_dict()
    of_all = Spread(name, list(rows), 0, None).to_dict()
    distance, half = of_sample["mean_cosine_distance"], of_sample["plus_minus"]
    return {
        "name": name,
        "requests": len(rows),
        "sampled": len(sample.rows),
        "mean_cosine_distance": distance,
        "distance_95": None if distance is None else [round(distance - half, 4), round(distance + half, 4)],
        "near_copies": round(len(copies) / len(sample.rows), 4),
        **{key: of_sample[key] for key in ("words", "characters", "tools", "servers", "by_language", "by_steps")},
        "all": {key: of_all[key] for key in ("tools", "servers")},
    }


def _line(name: str, row: Row, copy: tuple[int, float] | None) -> JsonObject:
    """A drawn request for ``rows.jsonl``; ``copy_of`` is the line, within its set, that it is a near copy of."""
    return {
        "set": name, "id": row.id, "query": row.text, "tools": [tool for tool, _ in row.calls],
        "copy_of": copy[0] if copy else None, "likeness": copy[1] if copy else None,
    }  # fmt: skip


def _named(path: Path) -> list[Row]:
    """A file's rows; those without an id get their place, since they are drawn by it."""
    rows = rows_of_file(path)
    return [row if row.id else replace(row, id=f"{path.name}:{at}") for at, row in enumerate(rows)]
