"""Fitted numbers that belong to an encoder: a dataclass as JSON in the encoder's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolscout.errors import StorageError
from toolscout.files import replace_file

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from toolscout.index.encoder import Encoder

    P = TypeVar("P", bound=DataclassInstance)
else:
    P = TypeVar("P")


def read_encoder_params(encoder: Encoder, name: str, kind: type[P]) -> P | None:
    """Read a file of the encoder's folder; None where it has none. Fields of other versions are left out.

    Raises StorageError if it cannot be read.
    """
    folder = getattr(encoder, "folder", None)
    path = folder / name if isinstance(folder, Path) else None
    if path is None or not path.is_file():
        return None
    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        known = {f.name for f in fields(kind)}
        return kind(**{name: value for name, value in values.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} cannot be read: {error}.", "Install Toolscout again.") from None


def write_encoder_params(path: Path, params: DataclassInstance) -> None:
    """Write parameters as JSON."""
    replace_file(path, json.dumps(asdict(params)) + "\n")
