"""``refresh``: what tools the servers have."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, counting, emit, note, printable, progress, say, with_engine
from toolscout.errors import NotFound, ToolscoutError, UpstreamError
from toolscout.server.upstreams.said import short_reason
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
    added since it was first listed. Exits with 5 if a server fails or lists nothing.
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
    exit_if_failed(listed)
    if any("error" in result for result in listed.values()):
        raise typer.Exit(UpstreamError.exit_code)


_SIDE_BY_SIDE = 4
_ASK_IT = (
    "Its entry is kept. What it says: toolscout logs {name}; change it: toolscout set {name}; then: "
    "toolscout refresh {name}"
)
_NEWS = ("added", "changed", "removed")
_NAMED = 3
"""How many servers that are waited for, and how many tools of a kind, are named."""


def list_tools_of(
    names: Sequence[str],
    settings: Settings,
    *,
    accept_changes: bool = False,
    trust: bool | None = None,
    within: float | None = None,
    logins: bool | None = None,
) -> dict[str, dict[str, Any]]:
    """Start the named servers, list their tools, index them. A failing one stays configured; its reason is returned.

    ``accept_changes`` and ``trust`` as in `Engine.refresh_server`, ``logins`` as in `with_engine`. ``within``: seconds
    that all of them together may take, as many of them side by side as the machine bears; one that takes longer is left
    as it is. ``login`` of a failing one: whether it is for want of a login in the browser.
    """
    import asyncio

    from toolscout.server.secrecy.secrets import MissingSecret
    from toolscout.server.upstreams.errors import NeedsKey, Unauthorized

    results: dict[str, dict[str, Any]] = {}
    width = _SIDE_BY_SIDE if within is None else min(20, max(8, 4 * (os.cpu_count() or 1)))

    async def work(engine: Engine) -> None:
        gate = asyncio.Semaphore(width)
        with progress("Listing tools") as tick:

            def show() -> None:
                waiting = [name for name in names if name not in results]
                more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
                tick(len(results), len(names), f"waiting for {', '.join(waiting[:_NAMED])}{more}" if waiting else "")

            async def one(name: str) -> None:
                async with gate:
                    try:
                        change = await engine.refresh_server(
                            name, accept_changes=accept_changes, reindex=False, trust=trust, patience=within or 0.0
                        )
                        counts = {key: len(getattr(change, key)) for key in ("added", "changed", "removed", "waiting")}
                        kept = counts["added"] + counts["changed"] + len(change.unchanged)
                        results[name] = {"tools": kept, **counts, "accepted": change.accepted}
                        if not kept:
                            results[name] |= {"state": "empty", "hint": _ASK_IT.format(name=shlex.quote(name))}
                        if kept > counts["added"] or counts["removed"]:
                            results[name]["news"] = {key: getattr(change, key) for key in _NEWS if counts[key]}
                    except ToolscoutError as error:
                        state = "needs_key" if isinstance(error, (MissingSecret, NeedsKey, Unauthorized)) else "failed"
                        hint = error.hint or _ASK_IT.format(name=shlex.quote(name))
                        results[name] = {"state": state, "error": str(error), "hint": hint}
                        if error.kind == "upstream_unauthorized":
                            results[name]["login"] = getattr(error, "login", True)
                show()

            show()
            tasks = [asyncio.create_task(one(name)) for name in names]
            try:
                await asyncio.wait(tasks, timeout=within)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        if any("tools" in r for r in results.values()):
            with progress("Indexing") as tick:
                await engine.reindex(counting(tick))

    if names:
        with_engine(work, settings=settings, logins=logins)
    for name in names:
        late = "It was not reached." if within is None else f"It did not list its tools within {within:g} s."
        again = f"toolscout refresh {shlex.quote(name)}"
        hint = f"Once more: {again} (toolscout config set upstream_start_timeout 120 gives it two minutes)"
        results.setdefault(name, {"state": "slow", "error": late, "hint": hint})
    return {name: results[name] for name in names}


def show_listed(listed: Mapping[str, Mapping[str, Any]]) -> None:
    """What `list_tools_of` found, one line a server, and one for each tool whose change was accepted unseen."""
    for name, result in listed.items():
        if "tools" in result:
            news = [f"{len(ids)} {key}: {_in_short(ids)}" for key, ids in result.get("news", {}).items()]
            say(f"{name}: {result['tools']} tools" + (f" ({'; '.join(news)})" if news else ""))
            for tool_id in result.get("accepted", ()):
                say(f"    {tool_id} is not what was approved before, and is approved as it is now")
        else:
            say(f"{name}: configured, but its tools could not be listed. {result['error']}")
        if result.get("hint"):
            say(f"    {result['hint']}")
    if waiting := sum(int(result.get("waiting", 0)) for result in listed.values()):
        note(f"{waiting} {'tools wait' if waiting > 1 else 'tool waits'} for your review: toolscout review")


def exit_if_failed(listed: Mapping[str, Mapping[str, Any]]) -> None:
    """Exit with 5 if a server did not start, took too long or lists nothing; what lacks a key or a login can wait."""
    if any(result.get("state") in ("failed", "slow", "empty") for result in listed.values()):
        raise typer.Exit(UpstreamError.exit_code)


def _in_short(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(tool_id.rpartition("/")[2] for tool_id in ids[:_NAMED]) + more


def list_added(
    names: Sequence[str], settings: Settings, *, within: float | None = None, logins: bool | None = None
) -> dict[str, dict[str, Any]]:
    """`list_tools_of` servers that a person has just added: that is the approval of their tools as they are now,
    known ones included, if the settings trust additions."""
    trusted = settings.trust_imports
    return list_tools_of(names, settings, accept_changes=trusted, trust=trusted, within=within, logins=logins)


def summary(listed: Mapping[str, Mapping[str, Any]]) -> str:
    """What came of servers that were listed, in one line: how many work, which do not, and why."""
    states: dict[str, list[str]] = {state: [] for state in _SAID}
    for name, result in listed.items():
        states[result.get("state", "works")].append(name)
    parts = []
    for state, (is_one, are_many) in _SAID.items():
        if names := states[state]:
            said = f"{len(names)} {is_one if len(names) == 1 else are_many}"
            named = [
                f"{printable(n)} ({short_reason(n, listed[n]['error'])})" if state == "failed" else n for n in names
            ]
            parts.append(said if state == "works" else f"{said}: {', '.join(map(printable, named))}")
    return "; ".join(parts) + "."


_SAID = {
    "works": ("works", "work"),
    "needs_key": ("needs a key or a login", "need keys or a login"),
    "failed": ("failed", "failed"),
    "empty": ("lists no tools", "list no tools"),
    "slow": ("took too long and stays configured", "took too long and stay configured"),
}
