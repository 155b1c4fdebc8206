"""Edit a client's configuration file: one entry in, one entry out, every other byte as it was."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from toolscout.errors import BadInput
from toolscout.server.clients import jsonc, yaml_edit
from toolscout.server.clients.documents import YAML, parse_document

_BOM = b"\xef\xbb\xbf"


def with_entry(data: bytes, path: Path, keys: Sequence[str], entry: Mapping[str, Any]) -> bytes:
    """A file's bytes with ``entry`` at ``keys``. Raises BadInput if it cannot be parsed or edited safely."""
    bom, text = _decode(data, path)
    parse_document(text, path)
    try:
        if path.suffix == ".toml":
            edited = _toml_set(text, keys, entry)
        elif path.suffix in YAML:
            edited = yaml_edit.set_entry(text, keys, entry)
        else:
            edited = jsonc.set_member(text, keys, dict(entry))
    except BadInput as error:
        raise BadInput(f"{path} was left alone. {error}") from None
    return bom + edited.encode()


def without_entry(data: bytes, path: Path, keys: Sequence[str], *, prune: int = 0) -> bytes:
    """A file's bytes without the entry at ``keys``; then without its ``prune`` innermost containers if empty."""
    bom, text = _decode(data, path)
    parse_document(text, path)
    yaml = path.suffix in YAML
    remove = yaml_edit.remove_entry if yaml else _toml_remove if path.suffix == ".toml" else jsonc.remove_member
    text = remove(text, keys)
    for depth in range(1, prune + 1):
        if lookup(parse_document(text, path), keys[:-depth]) == {}:
            text = remove(text, keys[:-depth])
    return bom + text.encode()


def lookup(document: Any, keys: Sequence[str]) -> Any:
    """The value at ``keys``, or None."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _decode(data: bytes, path: Path) -> tuple[bytes, str]:
    bom = _BOM if data.startswith(_BOM) else b""
    try:
        return bom, data[len(bom) :].decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text; it was left alone.") from None


def block(path: Path, keys: Sequence[str], entry: Mapping[str, Any]) -> str:
    """What a person would paste into the file: ``entry`` at ``keys`` in its language, ending in a newline."""
    if path.suffix == ".toml":
        return toml_block(keys, entry)
    document: Any = dict(entry)
    for key in reversed(keys):
        document = {key: document}
    return (
        yaml_edit.block(document) if path.suffix in YAML else json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    )


def toml_block(keys: Sequence[str], entry: Mapping[str, Any]) -> str:
    """``entry`` as TOML tables, ending in a newline."""
    document = tomlkit.document()
    holder: Any = document
    for key in keys[:-1]:
        holder = holder.setdefault(key, tomlkit.table(is_super_table=True))
    table = tomlkit.table()
    for name, value in entry.items():
        table[name] = dict(value) if isinstance(value, Mapping) else value
    holder[keys[-1]] = table
    return tomlkit.dumps(document).strip() + "\n"


def _toml_set(text: str, keys: Sequence[str], entry: Mapping[str, Any]) -> str:
    text = text if text.strip() else ""  # a lone carriage return is no TOML
    before = tomllib.loads(text)
    wanted = copy.deepcopy(before)
    holder: Any = wanted
    for key in keys[:-1]:
        holder = holder.setdefault(key, {})
        if not isinstance(holder, dict):
            raise BadInput(f"{'.'.join(keys[:-1])} is not a table.")
    present = keys[-1] in holder
    holder[keys[-1]] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in entry.items()}
    newline = "\r\n" if "\r\n" in text else "\n"
    if not present:  # a table of its own at the end touches nothing that is there
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        edited = text + gap + toml_block(keys, entry).replace("\n", newline)
        if _parses_to(edited, wanted):
            return edited
    try:
        document: Any = tomlkit.parse(text)
        holder = document
        for key in keys[:-1]:
            holder = holder.setdefault(key, tomlkit.table(is_super_table=True))
        holder[keys[-1]] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in entry.items()}
        edited = tomlkit.dumps(document)
    except (TOMLKitError, TypeError, ValueError):
        edited = ""
    if not _parses_to(edited, wanted):
        raise BadInput("Its layout does not allow a safe edit.")
    return edited


def _toml_remove(text: str, keys: Sequence[str]) -> str:
    if not text.strip():
        return text
    wanted = tomllib.loads(text)
    holder = lookup(wanted, keys[:-1])
    if not isinstance(holder, dict) or keys[-1] not in holder:
        return text
    del holder[keys[-1]]
    try:
        document: Any = tomlkit.parse(text)
        inner = document
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]
        edited = tomlkit.dumps(document)
    except (TOMLKitError, KeyError, TypeError, ValueError):
        edited = ""
    emptied = copy.deepcopy(wanted)  # a table that exists only by its children goes with the last of them
    for depth in range(len(keys) - 1, 0, -1):
        if lookup(emptied, keys[:depth]) == {}:
            del lookup(emptied, keys[: depth - 1])[keys[depth - 1]]
    if not _parses_to(edited, wanted) and not _parses_to(edited, emptied):
        raise BadInput(f"The entry {'.'.join(keys)} could not be removed without changing something else.")
    return edited


def _parses_to(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False
