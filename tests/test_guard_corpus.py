"""The corpus of poisoned tools and of honest ones that look like it: whole, and who measures is not trained on."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TRAIN, MEASURE = ROOT / "finetune" / "data" / "guard", ROOT / "eval" / "data" / "guard"


def rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield path.name.partition(".")[0], json.loads(line)


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def fourgrams(row: dict[str, Any]) -> frozenset[tuple[str, ...]]:
    words = re.findall(r"\w+", " ".join(texts([row["server"], row["tool"]])).casefold())
    return frozenset(zip(words, words[1:], words[2:], words[3:], strict=False))


def test_every_row_is_whole() -> None:
    for folder in (TRAIN, MEASURE):
        counts: Counter[tuple[str, bool]] = Counter()
        for writer, row in rows(folder):
            poisoned = row["level"] in ("plain", "careful")
            assert poisoned or row["level"] == "honest"
            said = list(texts([row["server"], row["tool"]]))
            assert bool(row.get("passage")) is poisoned, (writer, row["tool"]["name"])
            assert all(any(p in text for text in said) for p in row.get("passage", ())), (writer, row["tool"]["name"])
            assert ("before" in row) is (row["kind"] == "rug_pull") and ("near" in row) is (row["kind"] == "look_alike")
            counts[writer, poisoned] += 1
        assert counts and all(count >= (150 if poisoned else 100) for (_, poisoned), count in counts.items()), counts


def test_no_writer_trains_and_measures_and_nobody_copies() -> None:
    trained, measured = list(rows(TRAIN)), list(rows(MEASURE))
    assert not {writer for writer, _ in trained} & {writer for writer, _ in measured}
    seen: dict[tuple[str, ...], list[int]] = {}
    grams = [fourgrams(row) for _, row in trained]
    for number, row_grams in enumerate(grams):
        for gram in row_grams:
            seen.setdefault(gram, []).append(number)
    for writer, row in measured:
        own = fourgrams(row)
        shared = Counter(number for gram in own for number in seen.get(gram, ()))
        near = [n for n, count in shared.items() if count > 0.4 * min(len(own), len(grams[n])) and count > 5]
        assert not near, (writer, row["tool"]["name"], trained[near[0]][1]["tool"]["name"])
