"""``refresh``: what tools the servers have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, counting, emit, note, printable, progress, say, with_engine
from toolscout.errors import NotFound, ToolscoutError, UpstreamError
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.engine import Engine
    from toolscout.settings import Settings


def refresh(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names from `toolscout list`. Without any: all.", show_default=False)
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Approve tools that have changed, unseen.")] = False,
    as_json: AsJson = False,
) -> None:
    """List servers' tools again: after an update, or after editing mcp.json by hand.

    Tools that are not what they were when they were approved wait for your review. Exits with 5 if a server fails.
    """
    from toolscout.server.config import ServersFile

    settings = load_settings()
    present = ServersFile(settings.servers_file).load()
    unknown = [n for n in names or () if n not in present]
    if unknown:
        raise NotFound(f"No server named {unknown[0]!r} is configured.", "See: toolscout list")
    wanted = list(names or (n for n, config in present.items() if not config.disabled))
    listed = list_tools_of(wanted, settings, accept_changes=accept)
    if as_json:
        emit(listed)
    elif not listed:
        say("No server is configured.")
    else:
        show_listed(listed)
        if any(result.get("changed") for result in listed.values()) and not accept:
            note("Tools that have changed wait for your review: toolscout review")
    if any("error" in result for result in listed.values()):
        raise typer.Exit(UpstreamError.exit_code)


def list_tools_of(
    names: Sequence[str], settings: Settings, *, accept_changes: bool = True
) -> dict[str, dict[str, Any]]:
    """Start the named servers, list their tools, index them. A failing one stays configured; its reason is returned."""
    import asyncio

    results: dict[str, dict[str, Any]] = {}

    async def work(engine: Engine) -> None:
        gate, done = asyncio.Semaphore(4), 0
        with progress("Listing tools") as tick:

            async def one(name: str) -> None:
                nonlocal done
                async with gate:
                    try:
                        change = await engine.refresh_server(name, accept_changes=accept_changes, reindex=False)
                        counts = {key: len(getattr(change, key)) for key in ("added", "changed", "removed")}
                        kept = counts["added"] + counts["changed"] + len(change.unchanged)
                        results[name] = {"tools": kept, **counts}
                    except ToolscoutError as error:
                        results[name] = {"error": str(error), "hint": error.hint}
                done += 1
                tick(done, len(names))

            await asyncio.gather(*(one(name) for name in names))
        if any("tools" in r for r in results.values()):
            with progress("Indexing") as tick:
                await engine.reindex(counting(tick))

    if names:
        with_engine(work, settings=settings)
    return {name: results.get(name, {"error": str(UpstreamError("It was not reached."))}) for name in names}


def show_listed(listed: Mapping[str, Mapping[str, Any]]) -> None:
    """What `list_tools_of` found, one line a server."""
    for name, result in listed.items():
        if "tools" in result:
            news = [f"{result[key]} {key}" for key in ("added", "changed", "removed") if result.get(key)]
            whole = result.get("added") == result["tools"]
            say(f"{printable(name)}: {result['tools']} tools" + (f" ({', '.join(news)})" if news and not whole else ""))
        else:
            say(f"{printable(name)}: configured, but its tools could not be listed. {printable(result['error'])}")
            if result.get("hint"):
                say(f"    {result['hint']}")
