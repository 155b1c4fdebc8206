"""``update``: newer versions of the packages that servers run, each tried and looked at before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, Yes, confirm, emit, note, say, table, with_engine
from toolscout.errors import BadInput, ToolscoutError
from toolscout.records import Tool
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.config import ServersFile
    from toolscout.server.engine import Engine
    from toolscout.server.newest import Runs

_INSTALL_SECONDS = 300.0
_AT_ONCE = 4


def update(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names from `toolscout list`. Without any: all.", show_default=False)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say what is newer.")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="With --yes: approve new and changed tools, unseen.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Bring servers that run a package (npx, uvx) to its newest version.

    Starts the new version, shows which tools it adds, changes and removes, and asks. On a yes its entry names this
    version, and the tools are approved as they were shown, unless the guard finds something; with --yes alone what is
    new or changed waits for your review. On a no everything stays. Exits with 5 if a registry or a server fails.
    """
    from toolscout.server.config import ServersFile
    from toolscout.server.newest import runs_of

    settings = load_settings()
    servers = ServersFile(settings.servers_file)
    entries = {n: servers.entry(n) for n in names or [n for n, c in servers.load().items() if not c.disabled]}
    packages = {name: found for name, entry in entries.items() if (found := runs_of(entry)) is not None}
    if names and (others := [name for name in names if name not in packages]):
        raise BadInput(f"{others[0]} runs no package of npm or PyPI that can be read.", "Update it where it is from.")
    rows = _look_up(packages)
    older = [row for row in rows if row["state"] == "newer"]
    if older and not check:

        async def work(engine: Engine) -> None:
            for row in older:
                name = row["name"]
                try:
                    row |= await _renew(
                        engine, servers, name, entries[name], packages[name], row["newest"], accept, yes
                    )
                except ToolscoutError as error:
                    row |= {"state": "failed", "error": str(error), "hint": error.hint, "code": error.exit_code}

        with_engine(work, settings=settings.model_copy(update={"starter": False}))
    codes = [row.pop("code") for row in rows if "code" in row]
    if as_json:
        emit(rows)
    elif rows:
        cells = [
            [r["name"], r["package"], r["version"] or "any", r["newest"], r.get("error") or r["state"]] for r in rows
        ]
        table(cells, ["name", "package", "version", "newest", "state"])
    else:
        say("No server runs a package of npm or PyPI.")
    if codes or any(row["state"] == "declined" for row in rows):
        raise typer.Exit(max(codes, default=1))


def _look_up(packages: Mapping[str, Runs]) -> list[dict[str, Any]]:
    from toolscout.server.newest import is_newer, newest

    def one(name: str) -> dict[str, Any]:
        package = packages[name]
        row = {"name": name, "package": f"{package.registry}:{package.name}", "version": package.version, "newest": ""}
        try:
            row["newest"] = version = newest(package)
        except ToolscoutError as error:
            return row | {"state": "failed", "error": str(error), "hint": error.hint, "code": error.exit_code}
        return row | {"state": "newer" if package.version is None or is_newer(version, package.version) else "newest"}

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(one, packages))


async def _renew(
    engine: Engine,
    servers: ServersFile,
    name: str,
    before: Mapping[str, Any],
    package: Runs,
    version: str,
    accept: bool,
    yes: bool,
) -> dict[str, Any]:
    """Try one server's new version, show and ask; what became of it, for its row."""
    from toolscout.server.config import UpstreamConfig
    from toolscout.server.sandbox.package import forget
    from toolscout.server.upstreams.pool import UpstreamPool

    settings = engine.settings
    old, config = (UpstreamConfig.parse(name, entry) for entry in (before, package.pinned(before, version)))
    others = [other for n, other in servers.load().items() if n != name]
    note(f"{name}: trying {package.name} {version} ...")
    done = False
    try:
        async with UpstreamPool(settings, lambda: {name: config}) as pool:
            listed = await pool.list_tools(name, fresh=True, patience=_INSTALL_SECONDS)
        changes = _compared(engine, name, listed[1])
        news = changes["added"] or changes["changed"]
        approve = accept or (not yes and settings.trust_imports)
        also = ", and approve its tools as they are now" if news and approve and not yes else ""
        try:
            confirm(f"Use {package.name} {version} for {name}{also}?", yes)
        except typer.Exit:
            return {"state": "declined", "tools": changes}
        servers.change(before, config)
        done = True
    finally:
        forget(*((old, [*others, config]) if done else (config, [*others, old])), settings.home)
    change = await engine.refresh_server(name, accept_changes=approve, trust=approve, listed=listed)
    if change.waiting:
        note(f"{len(change.waiting)} of its tools wait for your review: toolscout review {name}")
    return {"state": "updated", "tools": changes}


def _compared(engine: Engine, name: str, listed: list[Tool]) -> dict[str, list[str]]:
    """Ids of the tools that are new, changed and gone, each shown."""
    from toolscout.index.guard.changes import FIELDS, difference

    known = {tool.tool_id: tool for tool in engine.catalogue.tools(name)}
    accepted = engine.catalogue.accepted_versions(known)
    now = {tool.tool_id: tool for tool in listed}
    found: dict[str, list[str]] = {"added": [], "changed": [], "removed": [i for i in known if i not in now]}
    for tool_id, tool in now.items():
        if tool_id not in known:
            found["added"].append(tool_id)
            note(f"  new: {tool_id}  {tool.description.strip().partition(chr(10))[0][:80]}")
            continue
        before = accepted.get(tool_id) or {field: getattr(known[tool_id], field) for field in FIELDS}
        if lines := difference(before, tool):
            found["changed"].append(tool_id)
            note("\n    ".join([f"  changed: {tool_id}", *lines]))
    for tool_id in found["removed"]:
        note(f"  gone: {tool_id}")
    if not any(found.values()):
        note("  its tools are the same")
    return found
