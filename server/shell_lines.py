"""Shells in a command line: which argument is a shell's text, and what such a text, or its entry, sets by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PureWindowsPath

_SHELLS = {"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "powershell", "pwsh"}
_TEXT_NEXT = re.compile(r"-[a-z]*c|-command", re.IGNORECASE)
_SETS = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)=|\bfor\s+([A-Za-z_]\w*)\s+in\b|\bread\s+(?:-\w+\s+)*([A-Za-z_]\w*)")


def text_at(command: str, args: Sequence[str]) -> int | None:
    """Where among the arguments the text of a shell stands (``bash -c TEXT``, also behind ``wsl``); None without."""
    shell = False
    for number, word in enumerate([command, *args]):
        if shell and _TEXT_NEXT.fullmatch(word):
            return number if number < len(args) else None
        shell = shell or PureWindowsPath(word).name.lower().removesuffix(".exe") in _SHELLS
    return None


def own_names(command: str, args: Sequence[str], env: Iterable[str] = ()) -> frozenset[str]:
    """Variables that the shell has by itself when it reads its text: those of the entry, those that the text sets."""
    at = text_at(command, args)
    if at is None:
        return frozenset()
    return frozenset(env) | {name for found in _SETS.findall(args[at]) for name in found if name}
