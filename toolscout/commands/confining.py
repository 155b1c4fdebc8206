"""The options of ``add`` and ``import`` that put a server into a sandbox."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import note
from toolscout.errors import BadInput, NotAllowed

if TYPE_CHECKING:
    from toolscout.server.config import UpstreamConfig
    from toolscout.settings import Settings

Confined = Annotated[
    bool | None,
    typer.Option("--sandbox/--no-sandbox", help="Run it in a sandbox.", show_default="as the setting sandbox says"),
]
AllowNetwork = Annotated[bool, typer.Option("--allow-network", help="In a sandbox, with the network.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="In a sandbox that reaches this host alone, or HOST:PORT. Repeatable.", show_default=False),
]
AllowRead = Annotated[
    list[Path] | None, typer.Option(help="In a sandbox that may read this path. Repeatable.", show_default=False)
]
AllowWrite = Annotated[
    list[Path] | None,
    typer.Option(help="In a sandbox that may read and write this path. Repeatable.", show_default=False),
]


def sandbox_entry(
    wanted: bool | None,
    network: bool = False,
    hosts: Sequence[str] | None = None,
    read: Sequence[Path] | None = None,
    write: Sequence[Path] | None = None,
) -> Any:
    """The ``sandbox`` of an entry as the options say it; None where they say nothing. To open something is to want one.

    Raises BadInput for options that contradict each other.
    """
    opened: dict[str, Any] = {}
    if network and hosts:
        raise BadInput("Give --allow-network or --allow-host, not both.")
    if network or hosts:
        opened["network"] = True if network else list(hosts or ())
    for field, paths in (("read", read), ("write", write)):
        if paths:
            opened[field] = [str(path.expanduser().absolute()) for path in paths]
    if opened and wanted is False:
        raise BadInput("--no-sandbox leaves nothing to allow.", "Leave it or the --allow options out.")
    return opened or wanted


def check_paths(config: UpstreamConfig, settings: Settings) -> None:
    """Raise BadInput for a working folder or a path of the sandbox that cannot be what it is given for."""
    from toolscout.server.sandbox.box import check_folders

    cwd = Path(config.cwd).expanduser() if config.cwd and "${" not in config.cwd else None
    if cwd is not None and not (cwd.is_dir() and os.access(cwd, os.R_OK | os.X_OK)):
        why = "may not be read" if cwd.is_dir() else "is no folder"
        raise BadInput(f"{config.name} is to run in {cwd}, which {why}.", "Make it, or name another with --cwd.")
    if os.name == "posix" and (policy := config.policy(settings.sandbox)) is not None:
        try:
            check_folders(config.name, policy, settings.home)
        except NotAllowed as error:
            raise BadInput(str(error), error.hint) from None


def say_confined(config: UpstreamConfig, settings: Settings) -> None:
    """Say what a server's sandbox opens, and what its own lines name that it does not."""
    from toolscout.server.sandbox.wants import wants

    if config.url:
        return
    if (policy := config.policy(settings.sandbox)) is None:
        note("  in no sandbox: it runs with all your rights")
        return
    note(f"  in a sandbox: it {policy.shown()}")
    wanted = wants(config, policy, settings.home)
    if options := wanted.options():
        note(f"  its own line names what is not open there; to open it, say no and add: {options}")
    for remark in wanted.remarks:
        note(f"  {remark}")


def widened(before: Any, said: Any) -> Any:
    """The ``sandbox`` of an entry that opens what ``before`` does and what the options say; hosts take the place of the
    whole network. None where they say nothing."""
    if said is True and before:
        return before
    if not isinstance(said, dict) or not isinstance(before, dict):
        return said
    lists = {
        f: [*before[f], *new] for f, new in said.items() if isinstance(new, list) and isinstance(before.get(f), list)
    }
    return {**before, **said, **{field: list(dict.fromkeys(found)) for field, found in lists.items()}}
