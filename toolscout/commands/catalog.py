"""``catalog`` and ``index``: fill the catalog from files, write it to files, bring the search up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, Yes, confirm, counting, emit, note, progress, say, with_engine
from toolscout.errors import BadInput, NotFound, ToolscoutError

if TYPE_CHECKING:
    from toolscout.server.engine import Engine
    from toolscout.settings import Settings

app = typer.Typer(no_args_is_help=True, help="The catalog: import, export, remove, numbers.")
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
    """Read servers, tools and calls from JSONL files into the catalog."""
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
    """Write the catalog to JSONL files. No secret is in them: the catalog holds none."""
    from toolscout.index.catalogue import Catalogue
    from toolscout.index.transfer import export_files

    with Catalogue(_no_starter().database_url) as catalogue:
        written = export_files(catalogue, folder)
    if as_json:
        emit({"folder": str(folder), "written": _plain(written)})
    else:
        say(f"Wrote the catalog to {folder}.")


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
    """Remove imported or crawled servers and their tools from catalog and search.

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
        raise NotFound("There is no such server in the catalog.", "See: toolscout catalog stats")
    confirm(f"Remove {len(going):,} {'servers' if len(going) > 1 else 'server'} and what is known of them?", yes)

    async def work(engine: Engine) -> int:
        for server_id in going:  # all of them are there, or none goes
            if engine.catalogue.get_server(server_id) is None:
                raise NotFound(f"There is no server {server_id!r} in the catalog.", "Nothing was removed.")
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
    """Count what is in the catalog, and in the built-in catalog of servers that can be installed."""
    from toolscout.index.catalogue import Catalogue

    settings = _no_starter()
    with Catalogue(settings.database_url) as catalogue:
        found = catalogue.stats()
    found["pack"] = pack_facts(settings)
    if as_json:
        emit(found)
        return
    for key, value in found.items():
        say(f"{'built-in' if key == 'pack' else key:<14}{_line(value)}")


def pack_facts(settings: Settings) -> dict[str, Any] | str:
    """What is in the pack in use, and how old it is; a word where there is none."""
    from toolscout.index.encoder import make_encoder
    from toolscout.index.pack.current import find_pack

    try:
        found = find_pack(settings, make_encoder(settings).fingerprint)
    except ToolscoutError as error:
        return str(error)
    if found is None:
        return "off" if settings.pack == "off" else "none"
    manifest = found.manifest
    facts = {
        "date": manifest.date, "days_old": found.days_old(), "servers": manifest.servers, "tools": manifest.tools,
        "known_as_a_whole": manifest.vendors, "worked_calls": manifest.exemplars, "lines_of_ours": manifest.lines,
        "newest_listing": manifest.crawled, "file": str(found.path),
        "megabytes": round(found.path.stat().st_size / 1e6, 1),
    }  # fmt: skip
    return facts | ({"problem": found.problem} if found.problem else {})


@app.command("update")
def update(
    source: Annotated[
        str,
        typer.Option("--from", help="Address or file (.pack) of one; its signature is beside it.", show_default=False),
    ] = "",
    older: Annotated[bool, typer.Option("--older", help="Take one that is older than the one in use, too.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Go back to the one before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a newer built-in catalog into use: checked by SHA-256 and signature, in one step; the old one is kept."""
    from toolscout.index.pack.current import DEFAULT, roll_back
    from toolscout.server.pack_update import update_pack

    settings = _no_starter()
    if back and source:
        raise BadInput("Give --from or --back, not both.")
    if back:
        manifest = roll_back(settings)
    else:
        source = source or settings.pack_url
        if not source:
            raise BadInput(
                "There is no address to update from.", "Give --from ADDRESS or FILE, or set TOOLSCOUT_PACK_URL."
            )
        with progress("Fetching") as tick:
            manifest = update_pack(source, settings, older=older, progress=lambda done, total: tick(done, total))
    if as_json:
        emit({"date": manifest.date, "servers": manifest.servers, "tools": manifest.tools})
    else:
        use = "in use" if settings.pack == DEFAULT else "here"
        held = f"{manifest.servers:,} servers, {manifest.tools:,} tools"
        say(f"The built-in catalog of {manifest.date} is {use}: {held}.")
    if settings.pack != DEFAULT:
        note(f"It is not searched while TOOLSCOUT_PACK is {settings.pack}.")


@app.command("build-pack")
def build_pack_file(
    out: Annotated[Path, typer.Argument(help="The pack to write, such as 2026-11-25.pack.")],
    work: Annotated[Path, typer.Option(help="Folder of the build: a catalog, and vectors that are kept.")],
    servers: Files = None,
    tools: Files = None,
    sources: Annotated[
        Path | None, typer.Option(help="Folder of lines.tsv, vendors.jsonl and so on.", show_default="the repository's")
    ] = None,
    date: Annotated[str, typer.Option(help="The pack's date.", show_default="today")] = "",
    key: Annotated[Path | None, typer.Option(help="Sign it with this key.", show_default=False)] = None,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make the key first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build a pack from what a crawl exported: facts, vectors, hashed words; no text of others (docs/PACK.md)."""
    from dataclasses import asdict
    from datetime import UTC, datetime

    import toolscout.index.pack
    from toolscout.index import snapshot
    from toolscout.index.build import build_index
    from toolscout.index.catalogue import Catalogue
    from toolscout.index.encoder import make_encoder
    from toolscout.index.pack.build import build_pack
    from toolscout.index.pack.signature import make_key, sha256, sign
    from toolscout.index.pack.sources import PackSources
    from toolscout.index.storage import GenerationStorage
    from toolscout.index.transfer import import_files

    if new_key and key is not None:
        say(f"Public key: {make_key(key)}")
    day = date or datetime.now(UTC).date().isoformat()
    own = PackSources.read(sources or Path(toolscout.index.pack.__file__).parent / "sources")
    settings = _no_starter().model_copy(update={"home": work.absolute(), "database": "", "pack": "off"})
    settings.home.mkdir(parents=True, exist_ok=True)
    encoder = make_encoder(settings, threads=2)
    with Catalogue(settings.database_url) as catalogue, progress("Building") as tick:
        import_files(catalogue, servers=list(servers or ()), tools=list(tools or ()), progress=counting(tick))
        build_index(catalogue, settings, encoder=encoder, progress=counting(tick))
    generation = snapshot.current(settings.index_dir)
    if generation is None:
        raise NotFound(f"There is nothing to pack in {work}.", "Give --servers and --tools.")
    folder = settings.index_dir / generation
    manifest = build_pack(GenerationStorage(folder, snapshot.read_meta(folder)), encoder, own, out, date=day)
    made = {**asdict(manifest), "sha256": sha256(out), "bytes": out.stat().st_size}
    if key is not None:
        made["signed_by"] = sign(out, key)
    if as_json:
        emit(made)
    else:
        say(f"{out}: {manifest.servers:,} servers, {manifest.tools:,} tools, {made['bytes'] / 1e6:.1f} MB")


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
    """Bring the search index up to date with the catalog; only new texts are embedded."""
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
