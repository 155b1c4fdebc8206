"""``connect``: write Toolscout into a client's configuration, and take it out again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.commands.output import AsJson, Yes, confirm, emit, note, out, say
from toolscout.errors import BadInput
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.clients.connect import Change


def connect(
    client: Annotated[str, typer.Argument(help="claude, claude-code, cursor, vscode, codex or windsurf.")],
    undo: Annotated[bool, typer.Option("--undo", help="Take Toolscout out again.")] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Show what to paste where; write nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change; write nothing.")] = False,
    project: Annotated[
        Path | None, typer.Option(help="Write this folder's project configuration instead.", show_default="yours")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Write this file instead.", show_default=False)] = None,
    url: Annotated[
        str | None, typer.Option(help="Connect to a Toolscout that serves over HTTP.", show_default=False)
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add Toolscout to a client.

    Shows the change and asks first; keeps a backup. --undo puts the file back byte for byte, or, if it has changed
    since, takes out only Toolscout's entry. A file that cannot be parsed is never written.
    """
    from toolscout.server.clients import connect as clients
    from toolscout.server.clients.known import Machine, get_client

    home = load_settings().home
    known = get_client(client)
    machine = Machine(project=(project or Path.cwd()).expanduser().absolute())
    if print_only:
        path, text = clients.snippet(known, machine, url=url)
        if as_json:
            emit({"client": known.id, "file": str(path), "snippet": text})
        else:
            note(f"For {known.title}, in {path}:")
            say(text.rstrip("\n"))
        return
    if undo and url:
        raise BadInput("--undo takes no --url.")
    if undo:
        change = clients.plan_undo(known, machine, home, project=project is not None, file=file)
    else:
        change = clients.plan_connect(known, machine, project=project is not None, file=file, url=url)
    if not change.needed:
        if as_json:
            emit({"client": known.id, "file": str(change.path), "changed": False})
        else:
            say(f"{known.title} is connected already ({change.path}).")
        return
    if not as_json:
        _show_diff(change)
    if dry_run:
        if as_json:
            emit({"client": known.id, "file": str(change.path), "changed": False, "diff": change.diff()})
        return
    confirm(f"{'Write' if change.after is not None else 'Delete'} {change.path}?", yes)
    backup: Path | None = None
    if undo:
        clients.apply_undo(change, home)
    else:
        backup = clients.apply_connect(change, home)
    if as_json:
        saved = {"backup": str(backup)} if backup else {}
        emit({"client": known.id, "file": str(change.path), "changed": True, "diff": change.diff(), **saved})
        return
    if undo:
        say(f"Toolscout is taken out of {known.title}.")
        return
    say(f"{known.title} is connected. {known.reload}")
    if backup:
        say(f"Backup: {backup}")
    suffix = f" --project {project}" if project else f" --file {file}" if file else ""
    say(f"Undo:   toolscout connect {known.id} --undo{suffix}")


def _show_diff(change: Change) -> None:
    from rich.text import Text

    console = out()
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in change.diff().split("\n"):
        console.print(Text(line, style=styles.get(line[:1], "")))
