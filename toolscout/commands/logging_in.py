"""``login``: at remote servers, with the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.listing import list_added, show_listed
from toolscout.commands.output import AsJson, emit
from toolscout.errors import BadInput, NotFound, UpstreamError
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.settings import Settings


def login(
    names: Annotated[list[str], typer.Argument(help="Names of remote servers from `toolscout list`.")],
    as_json: AsJson = False,
) -> None:
    """Log in to remote servers with the browser, and list their tools.

    Their entries get "auth": "oauth" where they have no key. The tokens are kept in the home, for you alone, and
    renewed by themselves; an agent that meets a login that is due is told this command. Exits with 5 if a server fails.
    """
    listed = log_in(names, load_settings())
    if as_json:
        emit(listed)
    else:
        show_listed(listed)
    if any("error" in result for result in listed.values()):
        raise typer.Exit(UpstreamError.exit_code)


def log_in(names: Sequence[str], settings: Settings) -> dict[str, dict[str, Any]]:
    """Set the servers to a login and go through it; what `list_added` finds.

    Raises NotFound for a name that is not configured, BadInput for a server that has no login, StorageError where an
    entry was changed meanwhile.
    """
    from toolscout.server.config import ServersFile, UpstreamConfig

    servers = ServersFile(settings.servers_file)
    present = servers.load()
    for name in names:
        if name not in present:
            raise NotFound(f"No server named {name!r} is configured.", "See: toolscout list")
        config = present[name]
        if not config.url or (config.auth or "oauth") != "oauth" or "authorization" in map(str.lower, config.headers):
            why = "it has a key" if config.url else "it runs here"
            raise BadInput(f"{name!r} has no login: {why}.", "Take the key out of its entry in mcp.json first.")
    for name in names:
        if present[name].auth is None:
            before = present[name].fields
            servers.change(before, UpstreamConfig.parse(name, {**before, "auth": "oauth"}))
    return list_added(names, settings, logins=True)
