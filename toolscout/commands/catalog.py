"""``catalog`` and ``index``: fill the catalogue from files, write it to files, bring the search up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, Yes, confirm, counting, emit, note, progress, say, with_engine
from toolscout.errors import BadInput, NotFound

if TYPE_CHECKING:
    from toolscout.server.engine import Engine

app = typer.Typer(no_args_is_help=True, help="The catalogue: import, export, remove, numbers.")
index_app = typer.Typer(no_args_is_help=True, help="The search index.")

Files = Annotated[list[Path] | None, typer.Option(help="JSONL, .gz or not. Repeatable.", show_default=False)]


@app.command("import")
def import_catalogue(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder with servers.jsonl, tools.jsonl, calls.jsonl.", show_default=False)
    ] = None,
    servers: Files = None,
    tools: Files = None,
    calls: Files = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip malformed lines instead of stopping.")] = False,
    index: Annotated[bool, typer.Option(help="Bring the search up to date afterwards.")] = True,
    as_json: AsJson = False,
) -> None:
    """Read servers, tools and calls from JSONL files into the catalogue."""
    from toolscout.index.transfer import import_files

    sources = {"servers": list(servers or ()), "tools": list(tools or ()), "calls": list(calls or ())}
    if folder is not None:
        if not folder.is_dir():
            raise NotFound(f"There is no folder {folder}.", "Name a folder, or files with --servers, --tools, --calls.")
        for kind, paths in sources.items():
            paths += [p for p in (folder / f"{kind}.jsonl", folder / f"{kind}.jsonl.gz") if p.is_file()]
    if not any(sources.values()):
        raise BadInput("There is nothing to import.", "Name a folder, or files with --servers, --tools, --calls.")

    async def work(engine: Engine) -> Any:
        with progress("Importing") as tick:
            report = import_files(
                engine.catalogue,
                servers=sources["servers"],
                tools=sources["tools"],
                calls=sources["calls"],
                skip_bad=skip_bad,
                progress=counting(tick),
            )
        if index:
            with progress("Indexing") as tick:
                await engine.reindex(counting(tick))
        return report, int(engine.catalogue.stats()["tools"]["waiting"])

    report, held = with_engine(work, settings=_no_starter())
    if as_json:
        emit({**report.to_dict(), "waiting_for_review": held})
        return
    say(_report_line(report.to_dict()))
    if held:
        say(f"Held back for review, and not found until then: {held:,}. See: toolscout review")
    if report.calls_left_out:
        note("calls left out: the scanner found in them what would hold a tool back (docs/GUARD.md)")
    for line in report.bad:
        note(f"skipped: {line}")


def _report_line(report: dict[str, Any]) -> str:
    """``1 server made, 2 tools, 2 tools added, 1 bad line``: what the report counts, by what it calls it."""
    parts = []
    for key, value in report.items():
        if not isinstance(value, int) or not value:
            continue
        noun, _, rest = ("lines bad" if key == "bad_count" else key.replace("_", " ")).partition(" ")
        parts.append(f"{value:,} {noun.removesuffix('s') if value == 1 else noun} {rest}".strip())
    return "Imported " + (", ".join(parts) or "nothing") + "."


def _no_starter() -> Any:
    from toolscout.settings import load_settings

    return load_settings().model_copy(update={"starter": False})


@app.command("export")
def export_catalogue(
    folder: Annotated[Path, typer.Argument(help="Where to write servers.jsonl, tools.jsonl, calls.jsonl.")],
    as_json: AsJson = False,
) -> None:
    """Write the catalogue to JSONL files. No secret is in them: the catalogue holds none."""
    from toolscout.index.catalogue import Catalogue
    from toolscout.index.transfer import export_files

    with Catalogue(_no_starter().database_url) as catalogue:
        written = export_files(catalogue, folder)
    if as_json:
        emit({"folder": str(folder), "written": _plain(written)})
    else:
        say(f"Wrote the catalogue to {folder}.")


def _plain(value: Any) -> Any:
    from dataclasses import asdict, is_dataclass

    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@app.command("remove")
def remove(
    server_ids: Annotated[list[str] | None, typer.Argument(help="Ids of servers.", show_default=False)] = None,
    source: Annotated[
        str, typer.Option(metavar="NAME", help="Servers that are known from this source alone, such as npm.")
    ] = "",
    everything: Annotated[bool, typer.Option("--everything", help="All servers that are not configured.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove imported or crawled servers and their tools from catalogue and search.

    Configured servers are left alone: `toolscout remove` is for them.
    """
    from toolscout.server.config import ServersFile

    if bool(server_ids) + bool(source) + everything != 1:
        raise BadInput("Say which servers shall go.", "Give ids, or --source NAME, or --everything.")
    settings = _no_starter()
    configured = set(ServersFile(settings.servers_file).load())

    async def chosen(engine: Engine) -> list[str]:
        if server_ids:
            return list(dict.fromkeys(server_ids))
        return [
            server.server_id
            for server in engine.catalogue.servers()
            if server.server_id not in configured
            and (everything or {found.marketplace for found in server.sources} == {source})
        ]

    going = with_engine(chosen, settings=settings)
    if kept := sorted(configured & set(going)):
        raise BadInput(f"{kept[0]!r} is configured.", f"Run: toolscout remove {kept[0]}")
    if not going:
        raise NotFound("There is no such server in the catalogue.", "See: toolscout catalog stats")
    confirm(f"Remove {len(going):,} {'servers' if len(going) > 1 else 'server'} and what is known of them?", yes)

    async def work(engine: Engine) -> int:
        for server_id in going:  # all of them are there, or none goes
            if engine.catalogue.get_server(server_id) is None:
                raise NotFound(f"There is no server {server_id!r} in the catalogue.", "Nothing was removed.")
        tools = sum(engine.catalogue.remove_server(server_id) for server_id in going)
        with progress("Indexing") as tick:
            await engine.reindex(counting(tick))
        return tools

    tools = with_engine(work, settings=settings)
    if as_json:
        emit({"removed": len(going), "tools": tools})
    else:
        say(f"Removed {len(going):,} {'servers' if len(going) > 1 else 'server'} with {tools:,} tools.")


@app.command("stats")
def stats(as_json: AsJson = False) -> None:
    """Count what is in the catalogue."""
    from toolscout.index.catalogue import Catalogue

    with Catalogue(_no_starter().database_url) as catalogue:
        found = catalogue.stats()
    if as_json:
        emit(found)
        return
    for key, value in found.items():
        say(f"{key:<14}{_line(value)}")


def _line(value: Any) -> str:
    """One count with what it is made of: ``15  (approved 14, blocked 1)``."""
    if not isinstance(value, dict):
        return f"{value:,}" if isinstance(value, int) else str(value)
    total = [_line(value["total"])] if "total" in value else []
    parts = []
    for name, part in value.items():
        inner = part.items() if isinstance(part, dict) else [(name, part)]
        parts += [f"{str(key)[:24]} {_line(count)}" for key, count in inner if name != "total"]
    detail = ", ".join(parts)
    return "  ".join([*total, f"({detail})" if total and detail else detail]).rstrip()


@index_app.command("build")
def build(as_json: AsJson = False) -> None:
    """Bring the search index up to date with the catalogue; only new texts are embedded."""
    import time

    started = time.perf_counter()

    async def work(engine: Engine) -> int:
        with progress("Indexing") as tick:
            await engine.reindex(counting(tick))
        return engine.tool_count

    tools = with_engine(work, settings=_no_starter())
    seconds = round(time.perf_counter() - started, 2)
    if as_json:
        emit({"tools": tools, "seconds": seconds})
    else:
        say(f"{tools:,} tools are searchable.")
        note(f"{seconds} s")
