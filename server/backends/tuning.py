"""How a tuned model wants to be asked: the rendering and prompt length that it was trained on.

Training writes it once, as ``prompt.json`` in the adapter's folder. From there it goes with the model: a GGUF file
has it beside itself as ``NAME.json``, and an endpoint's model says it in its own name,
``NAME@style=compact,budget=4000``. The name is the one thing that every OpenAI-compatible server passes on, so that
whoever asks by that name asks rightly, on another machine too.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, NotFound
from toolscout.prompt import Style
from toolscout.records import JsonObject

PROMPT_FILE = "prompt.json"
"""What training leaves in an adapter's folder; :func:`read_tuning` reads it."""

_WORDS = {True: "yes", False: "no"}


@dataclass(frozen=True)
class Tuning:
    """See :class:`~toolscout.server.backends.base.Backend` for what the fields mean."""

    style: Style = "full"
    budget: int = 0
    none_at: float = 0.5
    chooses: bool | None = None
    """None where nothing is said about it."""

    @property
    def trained(self) -> bool:
        """True if it was trained on a rendering of its own."""
        return self.style != "full" or self.budget > 0

    def text(self) -> str:
        """What differs from an untuned model, as ``style=compact,budget=4000``; empty if nothing does."""
        plain = Tuning()
        pairs = ((f.name, getattr(self, f.name), getattr(plain, f.name)) for f in fields(self))
        return ",".join(f"{n}={_WORDS.get(v, v) if n == 'chooses' else v}" for n, v, p in pairs if v != p)


def parse_tuning(text: str) -> Tuning:
    """The reverse of :meth:`Tuning.text`. Raises BadInput."""
    given: JsonObject = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        given[name.strip()] = value.strip()
    unknown = set(given) - {f.name for f in fields(Tuning)}
    if unknown:
        raise BadInput(
            f"{min(unknown)!r} says nothing about how a model is asked.", "For example: style=compact,budget=4000"
        )
    return from_json(given)


def from_json(given: JsonObject) -> Tuning:
    """Tuning from an object with some of its fields; others are ignored. Raises BadInput for values that are none."""
    style = given.get("style", "full")
    if style not in ("full", "compact"):
        raise BadInput(f"There is no rendering {style!r}.", "Known: full, compact.")
    chooses = given.get("chooses")
    if isinstance(chooses, str):
        chooses = {word: value for value, word in _WORDS.items()}.get(chooses, chooses)
    if chooses not in (None, True, False):
        raise BadInput(f"chooses={chooses} says nothing.", "It is yes or no.")
    budget, none_at = _number(given, "budget", 0, 10_000_000), _number(given, "none_at", 0.5, 1.0)
    return Tuning(style, int(budget), none_at, chooses)


def _number(given: JsonObject, name: str, default: float, most: float) -> float:
    value: Any = given.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= most:
        raise BadInput(f"{value!r} is no {name} of a prompt.", f"It lies between 0 and {most:g}.")
    return number


def read_tuning(path: Path) -> Tuning:
    """From a JSON file, or from a model's or adapter's folder that holds ``prompt.json``.

    :raises NotFound: there is no such file or folder. A folder without ``prompt.json`` is an untuned model.
    :raises BadInput: the file says something else.
    """
    file = path / PROMPT_FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        return Tuning()
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise NotFound(f"There is no {path}.", "Give an adapter's folder, its prompt.json, or style=...") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}.", "Training writes it anew.") from error
    if not isinstance(found, dict):
        raise BadInput(f"{file} does not say how a model is asked.", 'For example: {"style": "compact"}')
    return from_json(found)


def named(name: str, tuning: Tuning) -> str:
    """The name under which a model is served, so that it says how it wants to be asked."""
    return f"{name}@{tuning.text()}" if tuning.text() else name


def tuning_of_name(name: str) -> Tuning | None:
    """What a served name says; None if it says nothing (many names hold an ``@`` for reasons of their own)."""
    _, at, text = name.rpartition("@")
    if not at or "=" not in text:
        return None
    try:
        return parse_tuning(text)
    except BadInput:
        return None


def bare_name(name: str) -> str:
    """A served name without what it says about asking."""
    return name if tuning_of_name(name) is None else name.rpartition("@")[0]


def setting_tuning(text: str) -> Tuning | None:
    """What ``TOOLSCOUT_MODEL_PROMPT`` says: ``style=...``, a folder or a JSON file. None if it is empty."""
    if not text.strip():
        return None
    path = Path(text).expanduser()
    if path.exists() or "=" not in text:
        return read_tuning(path)
    return parse_tuning(text)
