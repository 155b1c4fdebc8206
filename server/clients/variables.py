"""Variables of clients' files as ours: ``${env:X}``, ``{env:X}``, ``${input:x}`` and their like become ``${X}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolscout.server.clients.known import Machine
from toolscout.server.clients.redact import AMBIENT, variable_name

_DOLLAR = re.compile(r"\$\{(env:|input:|config:|command:)?([^}:]*)(:-[^}]*)?\}")
_BRACES = re.compile(r"(?<!\$)\{(env|file):([^}\s]+)\}")
_BARE = re.compile(r"((?i:bearer|basic|token)\s+)?\$([A-Z][A-Z0-9_]{2,})")
_ASKED = {"config:": "VS Code's setting", "command:": "what VS Code's command answers:"}


class Variables:
    """Translates the texts of one entry; what it wants from the person, and what is to be said, is collected.

    What a file holds that an entry reads is nothing to copy: a reference stands for it, and ``files`` has its path and
    content.

    Args:
        inputs: what the file asks for (VS Code's inputs), by id.
        folder: folder of the file, which the paths in ``{file:...}`` are relative to.
    """

    def __init__(self, machine: Machine, inputs: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
        self._machine, self._inputs, self._folder = machine, inputs, folder
        self.wants: dict[str, str] = {}
        self.notes: list[str] = []
        self.files: dict[str, tuple[str, str]] = {}
        project = str(machine.project) if machine.project else None
        slash = "\\" if machine.windows else "/"
        self._fixed = {
            "userHome": str(machine.home),
            "workspaceFolder": project,
            "workspaceRoot": project,
            "workspaceFolderBasename": Path(project).name if project else None,
            "pathSeparator": slash,
            "/": slash,
        }

    def translate(self, value: Any, field: str = "") -> Any:
        """A value with all texts in it translated."""
        if isinstance(value, list):
            return [self.translate(item, field) for item in value]
        if isinstance(value, Mapping):
            return {str(key): self.translate(item, field or str(key)) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        if field in ("env", "environment", "envs", "headers") and (bare := _BARE.fullmatch(value)):  # Gemini's form
            return f"{bare[1] or ''}${{{bare[2]}}}"
        return _DOLLAR.sub(self._dollar, _BRACES.sub(self._braces, value))

    def _braces(self, match: re.Match[str]) -> str:
        if match[1] == "env":
            return f"${{{match[2]}}}"
        path = self._folder / Path(match[2].replace("~", str(self._machine.home), 1))
        try:
            content = path.read_text("utf-8").strip()
        except (OSError, ValueError):  # also no UTF-8, or no path
            self.notes.append(f"{match[2]} could not be read")
            return match[0]
        return self.held(f"file {match[2]}", path, content)

    def held(self, text: str, path: Path, content: str) -> str:
        """A reference, named after ``text``, for what is read of a file."""
        if not content:
            return ""
        name, number = variable_name(text), 2
        while self.files.setdefault(name, (str(path), content)) != (str(path), content):
            name, number = variable_name(f"{text} {number}"), number + 1
        return f"${{{name}}}"

    def _dollar(self, match: re.Match[str]) -> str:
        kind, name, default = match[1], match[2], match[3] or ""
        if kind in ("input:", *_ASKED):
            return self._asked(kind, name)
        if kind is None and self._fixed.get(name) is not None and not default:
            return str(self._fixed[name])
        return f"${{{name}{default}}}"

    def _asked(self, kind: str, name: str) -> str:
        """A reference for what VS Code would ask the person for, or know by itself."""
        asked = self._inputs.get(name, {}) if kind == "input:" else {}
        variable = variable_name(name)
        variable = f"INPUT_{variable}" if variable in AMBIENT else variable
        default = asked.get("default")
        if asked.get("type") == "command":
            kind, name = "command:", str(asked.get("command") or name)
        elif isinstance(default, str) and default and not asked.get("password") and not re.search(r"[{}]", default):
            return f"${{{variable}:-{default}}}"
        self.wants[variable] = f"{_ASKED[kind]} {name}" if kind in _ASKED else str(asked.get("description") or name)
        if kind in _ASKED:
            self.notes.append(f"{variable} stands for {_ASKED[kind]} {name}")
        return f"${{{variable}}}"
