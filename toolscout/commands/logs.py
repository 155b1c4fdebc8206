"""``logs``: what a server has written to stderr."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, TextIO

import typer

from toolscout.commands.output import AsJson, emit, note, printable, say
from toolscout.errors import BadInput
from toolscout.settings import load_settings

_LOOK_SECONDS = 0.3


def logs(
    name: Annotated[str, typer.Argument(help="A name from `toolscout list`.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what it writes from now on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the last lines that a server has written to stderr, whoever started it.

    The last 128 to 256 KB of each are kept, in the home, readable by you alone; the secrets that Toolscout gave the
    server are hidden in them.
    """
    from toolscout.server.config import ServersFile
    from toolscout.server.upstreams.folder import log_file, older

    if follow and as_json:
        raise BadInput("--follow never ends: it takes no --json.")
    settings = load_settings()
    log = log_file(settings.home, name)
    if not log.exists() and not older(log).exists():
        ServersFile(settings.servers_file).entry(name)
        note(f"{name} has written nothing yet.")
    file = _open(log)
    found = [*(_open(older(log)) or ()), *(file or ())]
    shown = [line.rstrip("\n") for line in found[max(0, len(found) - lines) :]]
    if as_json:
        emit({"name": name, "file": str(log), "lines": shown})
        return
    for line in shown:
        say(line)
    if follow:
        _follow(log, file)


def _follow(log: Path, file: TextIO | None) -> None:
    while True:
        new = _open(log)
        for line in file or ():
            print(printable(line), end="", flush=True)
        if new is not None and (file is None or not os.path.sameopenfile(new.fileno(), file.fileno())):
            file = new  # the one before was full, and was read to its end
            continue
        if new is not None:
            new.close()
        time.sleep(_LOOK_SECONDS)


def _open(path: Path) -> TextIO | None:
    try:
        return path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
