"""Adapters that come with Toolscout: a known base model, tuned to write calls.

Each is a folder ``server/tuned/NAME``: ``caller.gguf`` (LoRA for llama.cpp), ``caller.json`` (its base, how it wants
to be asked, its rank among the models, the adapter's SHA-256) and ``README.md`` (the model card). The first two are
written by ``toolscout train caller-export --gguf-adapter server/tuned/NAME/caller.gguf --base-name BASE --title ...``,
the card by training. The base is fetched by ``toolscout model pull``.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from toolscout.errors import StorageError

FOLDER = Path(__file__).resolve().parent / "tuned"


@dataclass(frozen=True)
class PackagedAdapter:
    """One adapter. ``rank`` is on the scale of ``KnownModel.rank``; ``size`` in bytes."""

    name: str
    path: Path
    base: str
    rank: float
    sha256: str
    size: int
    title: str


@functools.cache
def packaged_adapters(folder: Path = FOLDER) -> dict[str, PackagedAdapter]:
    """The adapters in a folder by name. Raises StorageError for one that is broken."""
    found = {}
    for card in sorted(folder.glob("*/caller.json")):
        weights = card.with_suffix(".gguf")
        try:
            said = json.loads(card.read_text("utf-8"))
            adapter = PackagedAdapter(
                name=card.parent.name,
                path=weights,
                base=str(said["base"]),
                rank=float(said["rank"]),
                sha256=str(said["sha256"]),
                size=weights.stat().st_size,
                title=str(said["title"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"The adapter {card.parent.name} is broken: {error}.", "Install Toolscout again."
            ) from None
        found[adapter.name] = adapter
    return found
