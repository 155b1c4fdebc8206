"""Starts written by hand (`recipes.toml`), for well-known servers that list nothing from what they say themselves."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from toolscout.bubblewrap import HOME
from toolscout.crawler import dummies

_FILE = Path(__file__).with_name("recipes.toml")
_HEX = "0123456789abcdef" * 2
_MADE_UP = re.compile(rf"[\w.-]*{_HEX}[\w.-]*")


@dataclass(frozen=True)
class Recipe:
    """How one package is started. ``shown`` are its arguments as recorded, with placeholders for dummies."""

    entry: str = ""
    """Which of its commands; the likeliest one by default."""
    extra: str = ""
    """Which of its optional parts are installed with it (PyPI)."""
    http: bool = False
    """Whether it speaks HTTP when it is started so."""
    args: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables with dummies; only their names are recorded."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Variables whose value is meant as it is."""
    here: Mapping[str, str] = field(default_factory=dict)
    """Variables that nobody but this crawl needs: they are not recorded."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of files that it finds in its working folder, or in its home (``~/``)."""


def recipe_for(server_id: str) -> Recipe | None:
    """The recipe of a package (`toolscout.crawler.sources.base.package_id`), None where it needs none."""
    return _all().get(server_id)


@cache
def _all() -> dict[str, Recipe]:
    return read_recipes(_FILE.read_text("utf-8"))


def read_recipes(text: str) -> dict[str, Recipe]:
    """Recipes as they are written, by package. Raises TypeError for a field that no recipe has."""
    return {server_id: _recipe(written) for server_id, written in tomllib.loads(text).items()}


def made_up(texts: Iterable[str]) -> Iterator[str]:
    """The dummies in texts, part by part: a server may show one part alone of ``user/key:secret``."""
    for text in texts:
        yield from _MADE_UP.findall(text)


def _recipe(written: dict[str, Any]) -> Recipe:
    args = [word if isinstance(word, dict) else {word: word} for word in written.pop("args", [])]
    pairs = [(shown, _filled(value)) for word in args for shown, value in word.items()]
    env = {name: _filled(value) or dummies.value_for(name) for name, value in written.pop("env", {}).items()}
    files = {re.sub(r"^~", HOME, path): _filled(text) for path, text in written.pop("files", {}).items()}
    return Recipe(**written, args=tuple(v for _, v in pairs), shown=tuple(s for s, _ in pairs), env=env, files=files)


def _filled(text: str) -> str:
    return text.replace("{hex}", _HEX)
