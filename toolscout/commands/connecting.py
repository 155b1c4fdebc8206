"""``connect``: write Toolscout into a client's configuration, and take it out again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.commands.configuring import keep_shell_settings, shell_settings, variable_of
from toolscout.commands.output import AsJson, Yes, confirm, emit, note, printable, said_to_stay, say, show_diff
from toolscout.commands.servers import tool_counts
from toolscout.errors import BadInput, ToolscoutError
from toolscout.secret_store import open_store
from toolscout.server.clients.known import NAMES
from toolscout.settings import CONFIG_FILE, SECRET_SETTINGS, load_settings

if TYPE_CHECKING:
    from toolscout.server.clients.connect import Change
    from toolscout.server.config import UpstreamConfig
    from toolscout.settings import Settings


CLIENT_HELP = f"One of {NAMES}."


def connect(
    client: Annotated[str, typer.Argument(help=CLIENT_HELP)],
    undo: Annotated[bool, typer.Option("--undo", help="Take Toolscout out again.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also take out the client's servers that Toolscout has too.")
    ] = False,
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
    since, takes out only Toolscout's entry and puts back what --replace took out. A file that cannot be parsed is
    never written.

    A client goes on loading the other servers in its file. Those that Toolscout has too (see `toolscout import`) are
    reached through it now: --replace takes them out, which is what saves the context.
    """
    from toolscout.server.clients import connect as clients
    from toolscout.server.clients.known import Machine, get_client
    from toolscout.server.stdio import prepare

    settings = load_settings()
    home = settings.home
    known = get_client(client)
    machine = Machine(project=(project or Path.cwd()).expanduser().absolute())
    if print_only:
        place, text = clients.snippet(known, machine, url=url)
        if as_json:
            emit({"client": known.id, "file": place, "snippet": text})
        else:
            note(f"For {known.title}, in {place}:")
            say(text.rstrip("\n"))
        return
    if undo and (url or replace):
        raise BadInput(f"--undo takes no {'--url' if url else '--replace'}.")
    if undo:
        change = clients.plan_undo(known, machine, home, project=project is not None, file=file)
    else:
        change = clients.plan_connect(
            known,
            machine,
            project=project is not None,
            file=file,
            url=url,
            existing=_configured(settings, needed=replace),
            replace=replace,
        )
    works = tool_counts(settings) if change.taken_out else {}
    others: dict[str, object] = (
        {} if undo else {"in_toolscout": change.had, "only_here": change.only_here, "taken_out": change.taken_out}
    )
    suffix = f" --project {_quoted(project)}" if project else f" --file {_quoted(file)}" if file else ""
    if not change.needed:
        if as_json:
            emit({"client": known.id, "file": str(change.path), "changed": False, **others})
        else:
            say(f"{known.title} is connected already ({change.path}).")
            _say_others(change, f"{known.id} --replace{suffix}", url=url, works=works)
        return
    shell = {} if undo or url else shell_settings(home)
    written = [name for name in shell if name not in SECRET_SETTINGS]
    kept = [variable_of(name) for name in shell if name in SECRET_SETTINGS]
    if not undo:
        others |= {"settings": written, "secrets": [*change.secrets, *kept]}
    if not as_json:
        show_diff(change.diff())
        unseen = "Set in this shell, which the client does not see"
        if written:
            note(f"{unseen}; written into {home / CONFIG_FILE}: {', '.join(written)}")
        if kept:
            note(f"{unseen}; kept among your secrets: {', '.join(kept)}")
    if dry_run:
        if as_json:
            emit({"client": known.id, "file": str(change.path), "changed": False, "diff": change.diff(), **others})
        else:
            _say_others(change, f"{known.id} --replace{suffix}", url=url, works=works)
        return
    if change.taken_out and not as_json:
        _say_others(change, f"{known.id} --replace{suffix}", url=url, works=works)
    confirm(f"{'Write' if change.after is not None else 'Delete'} {change.path}?", yes)
    backup: Path | None = None
    differing: list[str] = []
    if undo:
        clients.apply_undo(change, home)
    else:
        differing = open_store(settings).keep(change.secrets)
        keep_shell_settings(settings, shell)
        backup = clients.apply_connect(change, home)
        if not url:
            note("Preparing its first start ...")
            with contextlib.suppress(ToolscoutError):  # slower at first, and no less connected
                asyncio.run(prepare(settings))
    if as_json:
        saved: dict[str, object] = {"backup": str(backup)} if backup else {}
        saved |= {"secrets_differing": differing} if differing else {}
        emit({"client": known.id, "file": str(change.path), "changed": True, "diff": change.diff(), **others, **saved})
        return
    if differing:
        say(said_to_stay(differing, "that file"))
    if undo:
        say(f"Toolscout is taken out of {known.title}.")
        return
    say(f"{known.title} is connected. {known.reload}")
    if backup:
        say(f"Backup: {backup}")
    say(f"Undo:   toolscout connect {known.id} --undo{suffix}")
    if not change.taken_out:
        _say_others(change, f"{known.id} --replace{suffix}", url=url, works=works)


def _configured(settings: Settings, *, needed: bool) -> dict[str, UpstreamConfig]:
    """Toolscout's own servers. A file of ours that cannot be read stops only what relies on it."""
    from toolscout.server.config import ServersFile

    try:
        return ServersFile(settings.servers_file).load()
    except BadInput:
        if needed:
            raise
        return {}


def _say_others(change: Change, replace: str, *, url: str | None, works: Collection[str]) -> None:
    """What else the client loads from the file, and what to do so that it loads only Toolscout. ``works``: names of
    servers whose tools are known here."""
    here = ", ".join(map(printable, change.only_here))
    had = ", ".join(map(printable, change.had))
    if change.taken_out:
        say(f"Out of {change.path} go, as Toolscout has them: {had}.")
        if silent := [name for name in change.taken_out if name not in works]:
            names = " ".join(map(_quoted, silent))
            say(f"Of these {', '.join(map(printable, silent))} list no tools here. Why: toolscout refresh {names}")
        if change.secrets:
            say(f"Their secrets are kept (toolscout secret list): {', '.join(change.secrets)}.")
    elif had:
        say(f"{change.path} also holds servers that are reached through Toolscout now: {had}.")
        say("The client goes on loading them. Taking them out of that file is what saves the context:")
        say(f"  toolscout connect {replace}{f' --url {_quoted(url)}' if url else ''}")
    if here:
        say(f"Only in {change.path}, not in Toolscout: {here}. `toolscout import` takes them over.")


def _quoted(text: object) -> str:
    import shlex

    return shlex.quote(str(text))
