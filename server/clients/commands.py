"""Command lines as clients' files hold them, as a program and its arguments that start on this machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from toolscout.server.clients.known import Machine

_LAUNCHERS = {"npx", "npm", "node", "bunx", "bun", "uvx", "uv", "python", "python3", "py", "docker", "deno", "pnpm"}
_SWITCHES = {"/c", "/d", "/s", "/q", "/k", "/v:on"}
_OF_CMD = re.compile(
    r"(?:^|\s)(?:\|\|?|&|\d?[<>]\S*)(?:\s|$)|%\w+%|(?i:^\s*(?:set|cd|chdir|pushd|call|start|if|for|echo|rem)\b)"
)
"""What only ``cmd`` understands: with any of it a line needs its shell."""


def as_command(entry: dict[str, Any], machine: Machine, notes: list[str]) -> dict[str, Any]:
    """``command``, ``args``, and where the line itself says so, ``env`` and ``cwd``, of an entry in the usual form.

    Windows' shells and ``.cmd`` shims are taken off where they only start a program. Raises ValueError for what is no
    command line.
    """
    command, words = _program(entry["command"], entry.get("args"), machine, notes)
    found: dict[str, Any] = {}
    if PureWindowsPath(command).name.lower() in {"cmd", "cmd.exe"} and (bare := _without_cmd(words)) is not None:
        found, (command, *words) = bare
        notes.append("started directly instead of through cmd")
    name = PureWindowsPath(command).name if "\\" in command else PurePosixPath(command).name
    short = re.sub(r"(?i)\.(cmd|exe|bat|ps1)$", "", name)
    bare_name = "\\" not in command and "/" not in command
    if short.lower() in _LAUNCHERS and (bare_name or ("\\" in command and not machine.windows)):
        command = short
    command, *words = (_at_home(word, machine) for word in (command, *words))
    return {"command": command, "args": words, **found}


def _program(command: Any, args: Any, machine: Machine, notes: list[str]) -> tuple[str, list[str]]:
    if isinstance(command, list):
        command, args = (text(command[0]) if command else ""), [*command[1:], *(args or [])]
    if not isinstance(command, str) or not command.strip():
        raise ValueError("its command is not text")
    if args is not None and not isinstance(args, list):
        raise ValueError("its args are not a list")
    command, words = command.strip(), [text(a) for a in args or []]
    one = not re.search(r"\s", command) or re.match(r"(?i)[a-z]:\\", command)
    if not words and not one and not Path(_at_home(command, machine)).exists():
        command, *words = split(command)
        notes.append("command line split into program and arguments")
    return command, words


def split(line: str) -> list[str]:
    """The words of a command line; a backslash escapes only where it is no Windows path's. Raises ValueError."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if re.search(r"\\[\w.]", line):
        lexer.escape = ""
    return list(lexer)


def _without_cmd(words: Sequence[str]) -> tuple[dict[str, Any], list[str]] | None:
    """What a call of ``cmd`` starts, and the variables and the folder that it sets first; None where it needs it."""
    words = list(words)
    while words and words[0].lower() in _SWITCHES:
        words.pop(0)
    if not words:
        raise ValueError("its cmd call starts nothing")
    *steps, last = re.split(r"\s*&&\s*", " ".join(words))
    env: dict[str, str] = {}
    found: dict[str, Any] = {}
    for step in steps:
        if sets := re.fullmatch(r'(?i)set\s+("?)(\w+)=(.*)\1\s*', step):
            env[sets[2]] = sets[3].strip()
        elif goes := re.fullmatch(r'(?i)(?:cd|chdir|pushd)\s+(?:/d\s+)?"?([^"&|<>%]+?)"?\s*', step):
            found["cwd"] = goes[1]
        else:
            return None
    if _OF_CMD.search(last) or any("%" in value for value in env.values()):
        return None
    if env:
        found["env"] = env
    return found, words if len(words) > 1 and not steps else split(last)


def _at_home(word: str, machine: Machine) -> str:
    return str(machine.home) + word[1:] if word.startswith(("~/", "~\\")) else word


def is_relative(command: str, args: Sequence[str], folder: Path) -> bool:
    """Whether a command line names something in the folder that it is run in."""
    if command.startswith(("./", "../", ".\\")):
        return True
    return any(not a.startswith("-") and not Path(a).is_absolute() and (folder / a).exists() for a in args if a)


def text(value: Any) -> str:
    """A value of args, env or headers as text. Raises ValueError for a list or an object."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, (str, int, float, type(None))):
        raise ValueError("a value of its args, env or headers is a list or an object, not text")
    return "" if value is None else str(value)
