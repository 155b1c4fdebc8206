"""``secret``: keys and passwords that servers need, kept where clients started from the desktop find them, too."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.commands.output import AsJson, confirm, emit, note, say, table
from toolscout.errors import BadInput, NotFound
from toolscout.secret_store import open_store
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.settings import Settings

app = typer.Typer(help="Keep the keys and passwords that servers need.", no_args_is_help=True)


@app.command("set")
def set_secrets(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="As configurations refer to it: ${NAME}.")],
) -> None:
    """Keep secrets, asked for without showing them, or one read from standard input.

    They go into the operating system's keyring; where there is none, into a file of the home that only you can read
    (mode 600): that hides them from other users of the machine, not from programs that you run. A variable of the same
    name in the environment wins.

    Example: "toolscout secret set GITHUB_TOKEN".
    """
    settings = load_settings()
    store = open_store(settings)
    if len(names) > 1 and not sys.stdin.isatty():
        raise BadInput("Standard input holds one secret.", "Name one, or run it in a terminal.")
    for name in names:
        store[name] = typer.prompt(name, hide_input=True, err=True) if sys.stdin.isatty() else _from_stdin(name)
        say(f"{name} is kept in {_place(store.place(name), str(store.path))}.")
        if servers := _users([name], settings)[name]:
            note(f"It is used by {', '.join(servers)}.")


@app.command("list")
def list_secrets(as_json: AsJson = False) -> None:
    """List the names of kept secrets and what refers to them; never a value."""
    settings = load_settings()
    store = open_store(settings)
    used = _users(store, settings)
    rows = [{"name": name, "in": store.place(name), "servers": used[name]} for name in sorted(store)]
    if as_json:
        emit(rows)
    elif rows:
        table(
            [[str(r["name"]), str(r["in"]), ", ".join(used[str(r["name"])])] for r in rows], ["name", "in", "used by"]
        )
    else:
        say("No secret is kept. Keep one: toolscout secret set NAME")


@app.command("remove")
def remove_secrets(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Kept secrets.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget secrets. Names the servers that use them, and asks first."""
    settings = load_settings()
    store = open_store(settings)
    if unknown := [name for name in names if name not in store]:
        raise NotFound(f"No secret named {unknown[0]} is kept.", "See: toolscout secret list")
    for name, servers in _users(names, settings).items():
        if servers:
            note(f"{name} is used by {', '.join(servers)}.")
    confirm(f"Forget {', '.join(names)}?", yes)
    for name in names:
        del store[name]
        note(f"Forgotten: {name}.")


def _users(names: Iterable[str], settings: Settings) -> dict[str, list[str]]:
    """The servers that refer to each of the names, also those where a default would take its place."""
    from toolscout.server.config import ServersFile
    from toolscout.server.secrecy.secrets import bare_names

    servers = ServersFile(settings.servers_file).load().items()
    return {n: [s for s, config in servers if n in bare_names(config.references(defaulted=True))] for n in names}


def _from_stdin(name: str) -> str:
    try:  # not as sys.stdin decodes: with some locales it takes all bytes
        return io.TextIOWrapper(sys.stdin.buffer, "utf-8").read().strip("\r\n")
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not kept: what came on standard input is no UTF-8 text.") from None


def _place(kind: str, path: str) -> str:
    return "the system's keyring" if kind == "keyring" else f"{path}, which only you can read"
