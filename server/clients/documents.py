"""Clients' configuration files as documents: JSON with or without comments, TOML, YAML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.server.clients import jsonc

YAML = (".yaml", ".yml")


def load_document(path: Path) -> dict[str, Any]:
    """A parsed configuration file; TOML and YAML by suffix, else JSON with or without comments. An empty file is empty.

    Raises BadInput naming the file.
    """
    try:
        data = path.read_bytes()
        utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # as PowerShell writes
        text = data.decode("utf-16" if utf_16 else "utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from None
    return parse_document(text, path)


def parse_document(text: str, path: Path) -> dict[str, Any]:
    """Like ``load_document``, of text already read."""
    if not text.strip():
        return {}
    try:
        if path.suffix in YAML:
            document = load_yaml(text) or {}
        else:
            document = tomllib.loads(text) if path.suffix == ".toml" else jsonc.loads(text)
    except BadInput as error:
        raise BadInput(f"{path} cannot be parsed. {error}") from None
    except (ValueError, RecursionError) as error:  # also an endless number, or nesting that is too deep
        raise BadInput(f"{path} is not valid {path.suffix[1:].upper()}: {error}.") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path} does not hold an object at its top level.")
    return document


def load_yaml(text: str) -> Any:
    """A YAML document. Raises BadInput; also for aliases, which could stand for endless copies."""
    import yaml  # type: ignore[import-untyped]

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise BadInput("Its YAML aliases are not understood.")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"Not valid YAML: {' '.join(str(error).split())}.") from None
