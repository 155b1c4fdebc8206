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
    accept: Annotated[bool, typer.Option("--accept", help="Approve new and changed tools, unseen.")] = False,
    as_json: AsJson = False,
) -> None:
    """List servers' tools again: after an update, or after editing mcp.json by hand.

    Tools that are not what they were when they were approved wait for your review, and so do those that a server has
    added since it was first listed. Exits with 5 if a server fails.
    """
    from toolscout.server.config import ServersFile

    settings = load_settings()
    present = ServersFile(settings.servers_file).load()
    unknown = [n for n in names or () if n not in present]
    if unknown:
        raise NotFound(f"No server named {unknown[0]!r} is configured.", "See: toolscout list")
    wanted = list(names or (n for n, config in present.items() if not config.disabled))
    listed = list_tools_of(wanted, settings, accept_changes=accept, trust=True if accept else None)
    if as_json:
        emit(listed)
    elif not listed:
        say("No server is configured.")
    else:
        show_listed(listed)
    if any("error" in result for result in listed.values()):
        raise typer.Exit(UpstreamError.exit_code)


def list_tools_of(
    names: Sequence[str], settings: Settings, *, accept_changes: bool = False, trust: bool | None = None
) -> dict[str, dict[str, Any]]:
    """Start the named servers, list their tools, index them. A failing one stays configured; its reason is returned.

    ``accept_changes`` and ``trust`` as in `Engine.refresh_server`.
    """
    import asyncio

    results: dict[str, dict[str, Any]] = {}

    async def work(engine: Engine) -> None:
        gate, done = asyncio.Semaphore(4), 0
        with progress("Listing tools") as tick:

            async def one(name: str) -> None:
                nonlocal done
                async with gate:
                    try:
                        change = await engine.refresh_server(
                            name, accept_changes=accept_changes, reindex=False, trust=trust
                        )
                        counts = {key: len(getattr(change, key)) for key in ("added", "changed", "removed", "waiting")}
                        kept = counts["added"] + counts["changed"] + len(change.unchanged)
                        results[name] = {"tools": kept, **counts, "accepted": change.accepted}
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
    """What `list_tools_of` found, one line a server, and one for each tool whose change was accepted unseen."""
    for name, result in listed.items():
        if "tools" in result:
            news = [f"{result[key]} {key}" for key in ("added", "changed", "removed") if result.get(key)]
            whole = result.get("added") == result["tools"]
            say(f"{printable(name)}: {result['tools']} tools" + (f" ({', '.join(news)})" if news and not whole else ""))
            for tool_id in result.get("accepted", ()):
                say(f"    {printable(tool_id)} is not what was approved before, and is approved as it is now")
        else:
            say(f"{printable(name)}: configured, but its tools could not be listed. {printable(result['error'])}")
            if result.get("hint"):
                say(f"    {result['hint']}")
    if waiting := sum(int(result.get("waiting", 0)) for result in listed.values()):
        note(f"{waiting} {'tools wait' if waiting > 1 else 'tool waits'} for your review: toolscout review")


def list_added(names: Sequence[str], settings: Settings) -> dict[str, dict[str, Any]]:
    """`list_tools_of` servers that a person has just added: that is the approval of their tools as they are now,
    known ones included, if the settings trust additions."""
    return list_tools_of(names, settings, accept_changes=settings.trust_imports, trust=settings.trust_imports)
