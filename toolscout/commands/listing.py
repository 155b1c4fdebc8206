"""``refresh`` and ``review``: what tools the servers have, and which of them may be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, counting, emit, note, printable, progress, say, table, with_engine
from toolscout.errors import BadInput, NotFound, ToolscoutError, UpstreamError
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


def review(
    tool_ids: Annotated[
        list[str] | None, typer.Argument(help="Tool or server ids. Without any: list what waits.", show_default=False)
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Let them be found and called.")] = False,
    block: Annotated[bool, typer.Option("--block", help="Keep them out for good.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at tools that are new, changed or blocked, and approve or block them."""
    from toolscout.records import Review

    if approve and block:
        raise BadInput("Say --approve or --block, not both.")
    if (approve or block) and not tool_ids:
        raise BadInput("Say which tools: their ids, or the id of their server.", "See: toolscout review")
    waiting = {Review.PENDING, Review.CHANGED, Review.BLOCKED}
    wanted = set(tool_ids or ())

    def chosen(engine: Engine, reviews: set[Review] | None) -> list[Any]:
        found = [
            t
            for t in engine.catalogue.tools(reviews=reviews)
            if not wanted or t.tool_id in wanted or t.server_id in wanted
        ]
        unknown = wanted - {t.tool_id for t in found} - {t.server_id for t in found}
        if unknown and reviews is None:
            raise NotFound(f"No tool or server has the id {min(unknown)!r}.", "See: toolscout review, toolscout list")
        return found

    async def work(engine: Engine) -> list[Any]:
        if not approve and not block:
            return chosen(engine, None if wanted else waiting)
        found = chosen(engine, None)
        verdict = Review.APPROVED if approve else Review.BLOCKED
        engine.catalogue.set_review([t.tool_id for t in found], verdict)
        await engine.reindex()
        return [t.model_copy(update={"review": verdict}) for t in found]

    tools = with_engine(work, settings=load_settings().model_copy(update={"starter": False}))
    if as_json:
        emit([t.model_dump(mode="json", exclude_none=True) for t in tools])
    elif approve or block:
        say(f"{'Approved' if approve else 'Blocked'} {len(tools)} tool{'s' if len(tools) != 1 else ''}.")
    elif not tools:
        say("Nothing waits for review.")
    else:
        table(
            [[t.tool_id, t.review.value, _findings(t), t.description.strip().split("\n")[0][:80]] for t in tools],
            ["tool", "review", "findings", "description"],
        )
        for line in (line for t in tools if wanted for line in _evidence(t)):
            say(line)
        note("Then: toolscout review TOOL_ID... --approve (or --block)")


def _findings(tool: Any) -> str:
    found = (str(f.get("message") or f.get("rule") or f.get("kind") or f) for f in tool.findings)
    return printable("; ".join(dict.fromkeys(found)))[:80]


def _evidence(tool: Any) -> list[str]:
    """What the scanner found, with where and what it read, for who has to decide."""
    lines = []
    for found in tool.findings:
        if {"severity", "code", "where", "evidence"} <= found.keys():
            what = f"{found['severity']} {found['code']} in {found['where']}: {found.get('message', '')}"
            lines.append(printable(f"{tool.tool_id}  {what}: {found['evidence']!r}"))
    return lines
