"""The encoder as one versioned asset: a folder with the model, its tokenizer, its licence and a card with hashes.

encoder.json    name, dim, max tokens, prefixes, fingerprint, licence, source, size and SHA-256 of each file
model.onnx      input_ids, attention_mask -> embedding (pooled and L2-normalised)
tokenizer.json  padding off
LICENSE
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from toolscout.errors import NotAllowed, NotFound, StorageError

CARD = "encoder.json"
MODEL = "model.onnx"
TOKENIZER = "tokenizer.json"
FILES = (MODEL, TOKENIZER)
DEFAULT_ENCODER = "toolscout-minilm-v5"


@dataclass(frozen=True)
class EncoderCard:
    """What ``encoder.json`` says. ``fingerprint`` (hex) names the exact vectors: same fingerprint, same vectors."""

    name: str
    dim: int
    max_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""
    nothing: str = ""
    """The document that requests which no tool serves were trained towards; empty: there is none."""
    licence: str = ""
    source: str = ""
    pooling: str = "mean, L2-normalised, inside the graph"
    fingerprint: str = ""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def encoders_folder() -> Path:
    """Folder of the encoders that ship with the package."""
    return Path(__file__).parent / "encoders"


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fingerprint(card: EncoderCard, hashes: dict[str, str]) -> str:
    """SHA-256 over all that decides a vector: the files, the token limit and the prefixes."""
    parts: list[Any] = [card.max_tokens, card.query_prefix, card.document_prefix, sorted(hashes.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def write_card(folder: Path, card: EncoderCard) -> EncoderCard:
    """Hash the folder's files and write ``encoder.json``; returns the completed card."""
    hashes = {name: file_sha256(folder / name) for name in FILES}
    values = asdict(card)
    values["files"] = {name: {"bytes": (folder / name).stat().st_size, "sha256": hashes[name]} for name in FILES}
    values["fingerprint"] = _fingerprint(card, hashes)
    (folder / CARD).write_text(json.dumps(values, indent=2) + "\n", "utf-8")
    return EncoderCard(**values)


def read_card(folder: Path) -> EncoderCard:
    """The card of an asset folder, with the files' sizes checked (cheap: nothing is hashed).

    Raises NotFound if the folder is no encoder, StorageError if it is incomplete or unreadable.
    """
    path = folder / CARD
    if not path.is_file():
        raise NotFound(f"There is no encoder in {folder}.", f"An encoder folder holds {CARD}, {MODEL}, {TOKENIZER}.")
    try:
        values = json.loads(path.read_text("utf-8"))
        known = {f.name for f in fields(EncoderCard)}
        card = EncoderCard(**{k: v for k, v in values.items() if k in known})
        sizes = {name: int(card.files[name]["bytes"]) for name in FILES}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(
            f"The encoder's card {path} cannot be read: {error}.", "Install the encoder again."
        ) from None
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            raise StorageError(f"The encoder's file {file} is missing or incomplete.", "Install the encoder again.")
    return card


def verify(folder: Path) -> EncoderCard:
    """Hash every file and compare with the card. Slower than ``read_card``: for ``toolscout doctor``.

    Raises NotAllowed naming the file whose SHA-256 differs.
    """
    card = read_card(folder)
    hashes = {name: file_sha256(folder / name) for name in FILES}
    for name, value in hashes.items():
        if value != card.files[name]["sha256"]:
            raise NotAllowed(
                f"The encoder's file {folder / name} was altered: its SHA-256 is {value}, the card says "
                f"{card.files[name]['sha256']}.",
                "Install the encoder again.",
            )
    if _fingerprint(card, hashes) != card.fingerprint:
        raise NotAllowed(f"The encoder's card in {folder} was altered.", "Install the encoder again.")
    return card
