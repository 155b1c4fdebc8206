"""What training may not see: the requests it is measured with, and the tools that measuring calls unseen."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.finetune.pairs import Pool, definition, read_calls, read_pool, same_text
from toolscout.jsonl import read_objects
from toolscout.records import Call, Tool

_HINT = "Take these rows out of the training files, or give the files of another split."


def unseen_gold(dev: Iterable[Call]) -> set[str]:
    """Gold tools of the dev rows whose split says that their tool or server is unseen."""
    return {g.tool_id for call in dev if (call.split or "").startswith("unseen") for g in call.gold}


def alike(pool: Pool, tool_ids: Iterable[str]) -> set[str]:
    """The tools, and all that have the definition of one of them, or its name and description: unseen by name can be
    seen by definition."""
    wanted = set(tool_ids)
    marks = {mark for t in wanted if t in pool.tools for mark in _marks(pool.tools[t])}
    return wanted | {t.tool_id for t in pool.tools.values() if not marks.isdisjoint(_marks(t))}


def _marks(tool: Tool) -> tuple[str, ...]:
    """What makes two tools the same tool."""
    said = same_text(tool.description)
    # Beside an empty description a name says too little.
    return (definition(tool), f"{same_text(tool.name)}\n{said}") if said else (definition(tool),)


def check_leakage(train: Sequence[Call], dev: Sequence[Call]) -> None:
    """Raises BadInput when a training file holds a dev request, or a gold tool of an unseen dev split.

    Requests are compared without case, accents, punctuation and spacing.
    """
    asked = {same_text(call.query) for call in dev} - {""}
    repeated = [call.id for call in train if same_text(call.query) in asked]
    if repeated:
        raise BadInput(f"{len(repeated)} training rows ask what a dev row asks, the first is {repeated[0]!r}.", _HINT)
    hidden = unseen_gold(dev)
    shown = [(call.id, t) for call in train for t in sorted(call.relevant_ids() & hidden)]
    if shown:
        row, tool = shown[0]
        raise BadInput(
            f"{len(shown)} training rows show a tool that dev calls unseen, the first is {row!r} with {tool!r}.", _HINT
        )


def hold_out(pool: Pool, dev: Iterable[Call]) -> Pool:
    """The pool with the dev rows' unseen tools held out, and every tool of the pool that is defined like one of them
    or like a tool that is held out already."""
    return pool.without(alike(pool, unseen_gold(dev) | pool.held_out))


def marks(dev: Sequence[Call], pool: Pool) -> dict[str, list[str]]:
    """Hashes of the dev requests, of the ids of its unseen gold tools (and of tools alike in ``pool``), and of all
    tools that serve a dev request as well (``equivalent``): what a repository can hold to check its own training
    files, without holding the dev rows."""
    serving = {tool_id for call in dev for tool_id in call.relevant_ids()}
    return {
        "requests": sorted({_mark(same_text(call.query)) for call in dev} - {_mark("")}),
        "tools": sorted(_mark(tool_id) for tool_id in alike(pool, unseen_gold(dev))),
        "equivalent": sorted(_mark(tool_id) for tool_id in alike(pool, serving)),
    }


def marked(calls: Iterable[Call], known: dict[str, list[str]]) -> list[str]:
    """Ids of the calls that ask what a marked request asks or show a marked tool, an equivalent one included."""
    requests, tools = set(known["requests"]), {*known["tools"], *known["equivalent"]}
    return [
        call.id
        for call in calls
        if _mark(same_text(call.query)) in requests or any(_mark(t) in tools for t in call.relevant_ids())
    ]


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def trained_on(*rows: Path) -> npt.NDArray[np.uint64]:
    """Short marks of every request and tool id in the ``rows.jsonl.gz`` of runs, golds and negatives: uint64 [n],
    sorted. A file that ends in ``.npy`` holds such marks already. What the encoder that ships saw, from its first run
    to its last, is kept so in the repository (``tests/trained_on.npy``)."""
    said: set[str] = set()
    for path in rows:
        for _, row in read_objects(path) if path.suffix != ".npy" else ():
            said |= {same_text(str(row["query"])), str(row["gold"]), *map(str, row["negatives"])}
    known = [np.load(path) for path in rows if path.suffix == ".npy"]
    return np.unique(np.concatenate([short_marks(map(_mark, said - {""})), *known]))


def short_marks(marks: Iterable[str]) -> npt.NDArray[np.uint64]:
    """The first 64 bits of marks: a chance of one in a billion that some two of thirty thousand agree."""
    return np.array([int(mark[:16], 16) for mark in marks], dtype=np.uint64)


def main(argv: Sequence[str] | None = None) -> None:
    """``python -m toolscout.finetune.leakage DEV TOOLS...`` prints the marks of dev as JSON; TOOLS are all pools whose
    tools a training shows or a measuring asks over. ``... --trained OUT.npy RUN/rows.jsonl.gz ...`` keeps what runs
    saw; of earlier ones, their OUT.npy will do."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given[0] == "--trained":
        np.save(given[1], trained_on(*map(Path, given[2:])))
        return
    dev, *tools = (Path(a) for a in given)
    print(json.dumps(marks(read_calls([dev]), read_pool(tools)), indent=0))


if __name__ == "__main__":
    main()
