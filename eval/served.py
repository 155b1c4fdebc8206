"""The settings of a Toolscout that an evaluation starts: how it gets them, and which of them a work file is of."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from toolscout.eval.calls.identity import identity
from toolscout.eval.provenance import plain
from toolscout.index.encoder import make_encoder
from toolscout.records import JsonObject
from toolscout.settings import Settings

DECIDED = ("home", "database", "starter", "install_offers")
"""What an evaluation that makes a home of its own decides itself."""

_NO_MATTER = ("log_format", "log_level", "traces", "encoder_threads", "model_threads")
"""What no outcome depends on: a run may go on with others."""


def environment(settings: Settings) -> dict[str, str]:
    """The settings that are not the default, as variables; those of `DECIDED` aside."""
    return {f"TOOLSCOUT_{name.upper()}": _text(value) for name, value in _given(settings).items()}


def who_serves(settings: Settings) -> JsonObject:
    """What decides the answers of such a Toolscout: `identity`, and every other setting that was given.

    Keys are left out. Of a file its content counts, wherever it lies, and so it does of an encoder: a folder's is
    trained anew under the same name.
    """
    fields = Settings.model_fields
    kept = {n: v for n, v in _given(settings).items() if n not in _NO_MATTER and fields[n].repr}
    told = {name: _content(value) for name, value in kept.items()}
    return {**identity(settings), "encoder": make_encoder(settings).fingerprint, "settings": told}


def _given(settings: Settings) -> dict[str, Any]:
    fields = {name: field for name, field in Settings.model_fields.items() if name not in DECIDED}
    values = {name: getattr(settings, name) for name in fields}
    return {n: v for n, v in values.items() if v != fields[n].get_default(call_default_factory=True)}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return ",".join(value) if isinstance(value, list) else str(value)


def _content(value: Any) -> str:
    if isinstance(value, Path) and value.is_file():
        return hashlib.sha256(value.read_bytes()).hexdigest()[:16]
    return plain(_text(value))
