"""What an interrupted run of `eval retrieval` has done: answered requests, finished parts, measured peers.

A request's answer hangs on its words and on the index alone, so single requests are kept; what counts as right is
looked at afterwards. Parts that have no such pieces (an ablation, a peer) are kept when they are finished.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.eval.work_file import Work
from toolscout.records import Call, JsonObject, canonical_json, sha256_hex
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.eval.retrieval.measure import Asked, Question

_KEPT = (
    "ranked", "probability", "no_match", "ms", "answer_tokens", "given", "dynamic_tokens", "fixed_tokens",
)  # fmt: skip
_SEARCH = (".py", ".json")
"""What the search is made of beside its encoder's weights: code, and fitted numbers."""


def header_of(tools: Sequence[Path], servers: Sequence[Path], settings: Settings, tokenizer: Path | None) -> JsonObject:
    """What a work file is of: the files, the encoder, and the search itself, whose code may have changed meanwhile."""
    import toolscout.index

    code = Path(toolscout.index.__file__).parent
    return {
        "retrieval": 1,
        "files": [_digest(path) for path in [*tools, *servers]],
        "encoder": settings.encoder,
        "weights": weights_of(Path(settings.encoder)),
        "search": sha256_hex("".join(_digest(path) for path in sorted(code.rglob("*")) if path.suffix in _SEARCH)),
        "tokenizer": _digest(tokenizer) if tokenizer is not None else "",
    }


def weights_of(encoder: Path) -> list[str]:
    """What an encoder's folder holds: it may be trained anew under the same name. Empty where it is no folder."""
    return [_digest(path) for path in sorted(encoder.rglob("*")) if path.is_file()] if encoder.is_dir() else []


def _digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces: the measuring process must not grow. Empty for a file that is not there."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


@dataclass(frozen=True)
class Answers:
    """The answers to one form of the requests, each kept as soon as it is there."""

    done: Work
    form: str = "plain"

    def key(self, row: Call, question: Question) -> str:
        """Changes with what is asked, not only with the row's id."""
        asked = canonical_json([question.query, [astuple(request) for request in question.requests]])
        return f"{self.form} {row.id} {sha256_hex(asked)[:16]}"

    def add(self, key: str, asked: Asked) -> None:
        """Keep an answer."""
        self.done.add(key, {name: getattr(asked, name) for name in _KEPT})

    def get(self, key: str, row: Call) -> Asked:
        """An answer that was kept."""
        from toolscout.eval.retrieval.measure import Asked

        return Asked(row, **{name: self.done[key][name] for name in _KEPT})


def part_key(name: str, rows: Sequence[Call], *more: object) -> str:
    """The key of a part that is kept as a whole: it changes with all that the rows say, and with what else is given."""
    asked = [row.model_dump(mode="json") for row in rows]
    return f"part {name} {sha256_hex(canonical_json([asked, *more]))[:16]}"
