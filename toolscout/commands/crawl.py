"""``crawl``: find servers, deploy them in a sandbox, list their tools."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolscout.commands.output import AsJson, emit, note, progress, say
from toolscout.errors import BadInput, NotFound, StorageError

if TYPE_CHECKING:
    from toolscout.crawler.agent.costs import Costs
    from toolscout.crawler.coordinates import Coordinate
    from toolscout.crawler.crawl import Crawl, ListingReport, Progress
    from toolscout.crawler.enrich.run import Asking
    from toolscout.crawler.fetch import Fetcher
    from toolscout.crawler.place import Place
    from toolscout.crawler.remote_station import Setup
    from toolscout.crawler.sources.base import Source
    from toolscout.crawler.sources.known import Setup as Setups

_T = TypeVar("_T")

_SAY_EVERY = 60.0
"""Seconds between lines of progress where there is no terminal."""


def crawl(
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="npm, pypi, registry, clients, or a marketplace: smithery, glama, mcpso, mcphub, pulsemcp, deepnlp, "
            "pipedream. Repeatable.",
            show_default="what waits",
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of the crawl's memory, caches and sandboxes.", show_default="in the home"),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(help="REGISTRY=FILE with package names, one a line. Repeatable.", show_default=False),
    ] = None,
    package: Annotated[
        list[str] | None,
        typer.Option(help="Only this one: npm:NAME or pypi:NAME@VERSION. Repeatable.", show_default=False),
    ] = None,
    packages: Annotated[
        list[Path] | None,
        typer.Option(help="File of such packages, as --export writes it: a crawl made again.", show_default=False),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="Which names are taken (regular expression).", show_default="mcp; every name of a --names file"
        ),
    ] = None,
    in_order: Annotated[
        bool,
        typer.Option("--in-order", help="Deploy in the order of the files of --names and --packages: most used first."),
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Ask npm about each package before installing it.")
    ] = False,
    registry_url: Annotated[
        str, typer.Option(help="Address of the MCP registry.", envvar="TOOLSCOUT_REGISTRY_URL", show_default=False)
    ] = "",
    config: Annotated[
        list[Path] | None,
        typer.Option(help="For clients: a configuration file, or a folder of them.", show_default="your clients'"),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            help="'last' or a date (UTC): only what is new since, where a source can tell; without --source, of all "
            "that was listed before.",
            show_default=False,
        ),
    ] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin unfinished listings anew.")] = False,
    deploy: Annotated[bool, typer.Option(help="Deploy what waits for it; without, list only.")] = True,
    limit: Annotated[int, typer.Option(min=0, help="Deploy at most so many; 0: all.")] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="Stop after so long.", show_default="never")] = 0.0,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Servers deployed at once; with --ray, on each machine.")
    ] = 2,
    ray: Annotated[
        str,
        typer.Option(
            help="Deploy on a Ray cluster: HOST:PORT, auto (the one of this machine), or local (a new one, here).",
            show_default=False,
        ),
    ] = "",
    ray_work: Annotated[
        Path | None,
        typer.Option(help="Folder on each machine of the cluster.", show_default="'nodes' in the work folder"),
    ] = None,
    retry: Annotated[
        list[str] | None, typer.Option(help="Try failures of this class again. Repeatable.", show_default=False)
    ] = None,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, namespaces, or none (unsafe).")] = "auto",
    seconds: Annotated[float, typer.Option(min=1, help="Time for one start of a server.")] = 25.0,
    memory: Annotated[int, typer.Option(min=64, help="MiB of memory of one server.")] = 2048,
    disk: Annotated[int, typer.Option(min=16, help="MiB that one server may write.")] = 256,
    install_disk: Annotated[int, typer.Option(min=16, help="MiB of one installation.")] = 1024,
    keep_free: Annotated[float, typer.Option(min=0, help="GiB of disk that stay free.")] = 5.0,
    npm_client: Annotated[str, typer.Option(help="auto, bun or npm.")] = "auto",
    python: Annotated[
        list[Path] | None,
        typer.Option(help="Interpreter for PyPI packages. Repeatable, best first.", show_default="those found"),
    ] = None,
    contact: Annotated[str, typer.Option(help="Your address, told to the services that are asked.")] = "",
    export: Annotated[
        Path | None,
        typer.Option(help="Folder for servers.jsonl.gz, tools.jsonl.gz and packages.txt.", show_default=False),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Folder for crawl.html and crawl.json.", show_default=False)
    ] = None,
    known: Annotated[
        list[Path] | None,
        typer.Option(help="Servers from elsewhere (JSONL): the report counts what is new.", show_default=False),
    ] = None,
    catalog: Annotated[
        bool, typer.Option("--catalog", help="Bring the catalog up to date with what was found.")
    ] = False,
    enrich: Annotated[
        bool, typer.Option(help="Give what goes out a category and a summary (docs/ENRICHMENT.md).")
    ] = True,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="OpenAI-compatible endpoint that writes the summaries (http://host:8000/v1).",
            show_default="TOOLSCOUT_CRAWL_MODEL_URL, else from the servers' own words",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Its model.", show_default="the first one it lists")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Most requests to it at once.")] = 8,
    max_cost: Annotated[float, typer.Option(min=0, help="Cost ceiling of the work folder's summaries; 0: none.")] = 0.0,
    price_in: Annotated[
        float | None, typer.Option(min=0, help="Price of a million prompt tokens.", show_default="0")
    ] = None,
    price_out: Annotated[
        float | None, typer.Option(min=0, help="Price of a million answer tokens.", show_default="0")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find MCP servers, deploy each in a sandbox, list its tools; stopped anywhere, the same command goes on.

    Nothing of a foreign package runs outside the sandbox: npm with scripts off, wheels only from PyPI, no network and
    no file of yours at listing time.
    """
    from toolscout.crawler.crawl import Crawl, DeployOptions
    from toolscout.crawler.enrich.run import Asking
    from toolscout.crawler.failures import Failure
    from toolscout.crawler.limits import Limits
    from toolscout.crawler.remote_station import Setup
    from toolscout.settings import load_settings

    classes = [str(f) for f in Failure]
    for name in retry or ():
        if name not in classes:
            raise BadInput(f"There is no failure class '{name}'.", f"Known are: {', '.join(classes)}.")
    since = _since(since)
    _check_programs(npm_client, python or ())
    limits = Limits(seconds=seconds, memory=memory, disk=disk, install_disk=install_disk)
    options = DeployOptions(limit, minutes, tuple(retry or ()))
    asking = Asking(endpoint, model, price_in, price_out, max_cost, concurrency)
    if enrich:
        asking.check()
    folder = work or load_settings().home / "crawl"
    setup = Setup(
        (ray_work or folder / "nodes").resolve(), sandbox, limits, keep_free, npm_client, python or (), contact
    )
    with Crawl(folder) as crawling, _sigterm_is_ctrl_c():
        kit = _Kit(crawling, setup, workers, ray)
        named = _named(package or [], packages or [])
        wanted = _Wanted(source or [], names or [], named, pattern, details, registry_url, config or [])
        wanted.again = bool(since) and not wanted.sources and not named
        if not packages:  # of a crawl that is made again, what failed has failed
            options = replace(options, named=[package.server_id for package in named])
        if in_order:
            options = replace(options, first=wanted.in_order())
        _check_outputs(export, report, known or [])
        listed, done = asyncio.run(_until_sigterm(_work(kit, wanted, options, since, fresh, deploy)))
        result: dict[str, Any] = {"work": str(folder), "listed": [vars(r) for r in listed]}
        if done is not None:
            result["deployed"] = {**vars(done), "rate": round(done.rate, 1)}
        if packages:
            from toolscout.crawler.coordinates import compare

            result["again"] = vars(compare(crawling.state, named))
        failures = crawling.state.failures(options.named) if done is not None else {}
        if failures:
            result["failed"] = {k: {"failure": v.failure, "cause": v.cause} for k, v in failures.items()}
        result |= _outputs(crawling, export, report, known or [], catalog, asking if enrich else None)
    if as_json:
        emit(result)
    else:
        _tell(listed, done, result)
        for server_id, verdict in failures.items():
            said = verdict.evidence.strip().splitlines()
            note(f"{server_id} gave no tools: {verdict.failure} ({verdict.cause}). {said[-1][:200] if said else ''}")
    if failures or any(r.error for r in listed):
        raise typer.Exit(5)


class _Wanted:
    """Which sources, with what."""

    def __init__(
        self,
        sources: list[str],
        names: list[str],
        packages: list[Coordinate],
        pattern: str | None,
        details: bool,
        registry_url: str,
        config: list[Path],
    ) -> None:
        self.names: dict[str, Path] = {}
        for text in names:
            registry, sep, file = text.partition("=")
            if not sep or registry not in ("npm", "pypi"):
                raise BadInput(f"--names {text} is not REGISTRY=FILE.", "For example: --names npm=names.txt")
            self.names[registry] = Path(file)
        self.packages = packages
        self.sources = list(dict.fromkeys([*sources, *(r for r in self.names if r not in sources)]))
        self.pattern = pattern
        self.details = details
        self.registry_url = registry_url
        self.config = config
        self.again = False
        """All that was listed before, in place of sources that are named."""
        if config and "clients" not in self.sources:
            self.sources.append("clients")

    def in_order(self) -> list[str]:
        """The servers that files and options name, in their order: those of --names first."""
        from toolscout.crawler.sources.base import package_id
        from toolscout.crawler.sources.names import read_names

        listed = [package_id(registry, name) for registry, file in self.names.items() for name in read_names(file)]
        return [*listed, *(package.server_id for package in self.packages)]


def _since(text: str) -> str:
    """``last``, nothing, or a moment as services want it. Raises BadInput."""
    from toolscout.crawler.moments import rfc3339

    return text if text in ("", "last") else rfc3339(text)


def _check_programs(npm_client: str, pythons: Sequence[Path]) -> None:
    """Raises BadInput for an npm client that is unknown, or an interpreter that is not there."""
    if npm_client not in ("auto", "bun", "npm"):
        raise BadInput(f"There is no npm client '{npm_client}'.", "Known are: auto, bun, npm.")
    for python in pythons:
        if shutil.which(python) is None:
            raise BadInput(f"{python} is no program that can be run.", "Name a Python interpreter with --python.")


def _named(packages: list[str], files: list[Path]) -> list[Coordinate]:
    from toolscout.crawler.coordinates import parse, read

    return [*map(parse, packages), *(package for file in files for package in read(file))]


def _only_older(pythons: Sequence[Path]) -> bool:
    """Whether all interpreters are older than Python 3.12, as far as the names of their files tell."""
    found = [re.fullmatch(r"python3\.(\d+)", python.resolve().name) for python in pythons]
    return bool(found) and all(match is not None and int(match[1]) < 12 for match in found)


class _Kit:
    """The tools of a crawl, made when they are needed."""

    def __init__(self, crawling: Crawl, setup: Setup, workers: int, ray: str) -> None:
        self.crawling = crawling
        self.contact = setup.contact
        self._setup = setup
        self._workers = workers
        self._ray = ray

    @cached_property
    def installers(self) -> dict[str, Any]:
        """Those that work here. Raises NotAllowed when none does."""
        from toolscout.crawler.install.pypi import PypiInstaller
        from toolscout.crawler.station import open_installers

        setup = self._setup
        usable = open_installers(self.crawling.work, setup.limits, setup.npm_client, setup.pythons, note)
        pypi = usable.get("pypi")
        if isinstance(pypi, PypiInstaller) and _only_older([python for python, _ in pypi.pythons]):
            note("Many PyPI packages want Python 3.12 or newer, and none is here; --python names others.")
        return usable

    def place(self, fetcher: Fetcher) -> Place:
        """Where deployments run. Raises NotAllowed when none can run here, and none is to run elsewhere."""
        setup = self._setup
        if self._ray:
            from toolscout.crawler.cluster import Cluster

            return Cluster(self._ray, setup, self._workers, note)
        from toolscout.crawler.place import Here
        from toolscout.crawler.sandbox import choose
        from toolscout.crawler.station import Station, keep_starting

        box = choose(setup.sandbox)
        if not box.confined:
            note("WARNING: servers run without a sandbox, with access to the network and to what this user may read.")
        work, installers = self.crawling.work, keep_starting(box, self.installers, setup.limits, note)
        return Here(Station(box, work, installers, fetcher, setup.limits, setup.keep_free), self._workers)


async def _work(
    kit: _Kit, wanted: _Wanted, options: Any, since: str, fresh: bool, deploy: bool
) -> tuple[list[ListingReport], Progress | None]:
    from toolscout.crawler.agent.costs import Costs
    from toolscout.crawler.agent.settings import AgentSettings
    from toolscout.crawler.fetch import Fetcher

    crawling = kit.crawling
    async with Fetcher(crawling.state, contact=kit.contact) as fetcher:
        place = kit.place(fetcher) if deploy else None  # first: a listing is long, and a refusal should not wait for it
        settings = AgentSettings()
        costs = Costs(settings.price_in, settings.price_out)
        sources = _sources(kit, wanted, costs)
        if sources and not wanted.again:
            options = replace(options, sources=[source.key for source in sources])
        with _listing_progress() as tell:
            listed = await crawling.list_sources(
                sources, fetcher, since=since or None, fresh=fresh, tell=tell, costs=costs
            )
        if place is None:
            return listed, None
        with _deploy_progress() as show:
            done = await crawling.deploy(place, options, show)
    return listed, done


def _sources(kit: _Kit, wanted: _Wanted, costs: Costs) -> list[Source]:
    from toolscout.crawler.sources.known import Setup, make
    from toolscout.crawler.sources.packages import PackagesSource

    setup = Setup(
        names=wanted.names,
        pattern=wanted.pattern,
        details=wanted.details,
        registry_url=wanted.registry_url,
        config=wanted.config,
        work=kit.crawling.work,
        costs=costs,
    )
    if wanted.again:
        return _listed_before(kit, setup)
    made = [make(name, _equipped(kit, name, setup)) for name in wanted.sources]
    return [*made, PackagesSource(wanted.packages)] if wanted.packages else made


def _listed_before(kit: _Kit, setup: Setups) -> list[Source]:
    """Every source that was listed in this work folder, set up as it was; those that cannot be are named."""
    from toolscout.crawler.sources.known import make, restored

    made: list[Source] = []
    left: dict[str, str] = {}
    for name, told in kit.crawling.state.setups():
        if told is None:
            left[name] = "how it was set up was not kept."
            continue
        try:
            made.append(make(name, _equipped(kit, name, restored(told, setup))))
        except (BadInput, NotFound) as error:
            left[name] = str(error)
    left.pop("named", None)  # packages named one by one are no listing
    for name, reason in left.items():
        if not any(source.name == name for source in made):
            note(f"{name} is not listed again: {reason} Name it with --source, or its own option.")
    if not made:
        raise BadInput("Nothing was listed here before that can be listed again.", "Name a source with --source.")
    return made


def _equipped(kit: _Kit, name: str, setup: Setups) -> Setups:
    """The setup with what one source needs besides: an installer, or what clients have configured."""
    if name == "npm" and "npm" not in setup.names:
        return replace(setup, npm=kit.installers.get("npm"))
    if name == "clients":
        return replace(setup, configured=_configured(list(setup.config)))
    return setup


def _configured(files: list[Path]) -> list[Any]:
    """The servers of the user's clients, or of files. Read here: the crawler must not know the server room."""
    from toolscout.crawler.sources.clients import Configured
    from toolscout.server.clients.known import CLIENTS, Machine
    from toolscout.server.clients.read import Reading, read_client, read_file

    machine, reading = Machine(), Reading()
    if not files:
        for client in CLIENTS.values():
            reading.add(read_client(client, machine))
    for path in files:
        if path.is_dir():
            for inner in sorted(p for p in path.iterdir() if p.suffix in (".json", ".jsonc", ".toml") and p.is_file()):
                try:
                    reading.add(read_file(inner, machine))
                except (BadInput, NotFound) as error:
                    note(f"skipped: {error}")
        else:
            reading.add(read_file(path, machine))
    for failed, reason in reading.failures:
        note(f"skipped: {failed}: {reason}")
    return [Configured(e.name, e.config, e.source) for e in reading.entries if e.config and e.problem is None]


def _check_outputs(export: Path | None, report: Path | None, known: list[Path]) -> None:
    """Refuse before a crawl of hours what would be refused after it. Raises StorageError, NotFound."""
    for folder in (export, report):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"The folder {folder} cannot be made: {error.strerror}.", "Name another one.") from None
    for path in known:
        if not path.is_file():
            raise NotFound(f"There is no file {path}.", "--known takes files of servers (JSONL).")


def _outputs(
    crawling: Crawl, export: Path | None, report: Path | None, known: list[Path], catalog: bool, asking: Asking | None
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    facts = None
    if asking is not None and (export is not None or catalog):
        from toolscout.crawler.enrich.run import enrich

        with progress("Enriching") as tick:
            facts, enriched = enrich(crawling.state, crawling.work, asking, lambda done: tick(done, None))
        made["enriched"] = enriched.to_dict()
    if export is not None:
        from toolscout.crawler.export import export_files

        made["export"] = {"folder": str(export), **export_files(crawling.state, export, facts).to_dict()}
    if report is not None:
        from toolscout.crawler.report import write_report
        from toolscout.jsonl import read_records
        from toolscout.records import Server

        ids = [server.server_id for path in known for server in read_records(path, Server)]
        full = write_report(crawling.state, report, ids, facts)
        made["report"] = {k: full[k] for k in ("servers", "entities", "copies", "new_servers", "known", "tools")}
        made["report"]["folder"] = str(report)
    if catalog:
        from toolscout.crawler.export import into_catalogue
        from toolscout.index.catalogue import Catalogue
        from toolscout.settings import load_settings

        with Catalogue(load_settings().database_url) as catalogue:
            made["catalog"] = into_catalogue(crawling.state, catalogue, facts=facts).to_dict()
    return made


def _tell(listed: list[ListingReport], done: Progress | None, result: dict[str, Any]) -> None:
    for r in listed:
        gone = f", {r.gone:,} gone" if r.gone else ""
        say(f"{r.source}: {r.listed:,} listed, {r.new:,} new{gone}")
        if r.left_out:
            why = ", ".join(f"{count:,} ({reason})" for reason, count in r.left_out.items())
            note(f"{r.source} leaves out {sum(r.left_out.values()):,}: {why}.")
        if r.error:
            note(f"{r.source} stopped early: {r.error} The same command goes on from there.")
    if done is not None and not done.total:
        say("Nothing waited to be deployed.")
    elif done is not None:
        share = f" ({done.ok / done.done:.0%})" if done.done else ""
        say(f"{done.done:,} deployed, {done.ok:,} with tools{share}, {done.tools:,} tools, {done.rate:,.0f} an hour")
    if "again" in result:
        again = result["again"]
        say(
            f"of the packages named: {again['same']:,} with the same tools, {again['other_tools']:,} with others, "
            f"{again['no_tools']:,} with none, {again['not_tried']:,} not tried"
        )
    if "enriched" in result:
        _tell_enriched(result["enriched"])
    for name in ("export", "catalog"):
        if name in result:
            part = result[name]
            say(f"{name}: {part['servers']:,} servers, {part['tools']:,} tools, {part['merged']:,} copies merged")
    if "report" in result:
        made = result["report"]
        new = f", {made['new_servers']:,} of {made['entities']:,} servers new" if made["known"] else ""
        say(f"report: {made['folder']}/crawl.html{new}")
    if "catalog" in result:
        note("The search is brought up to date with: toolscout index build")


def _tell_enriched(enriched: dict[str, Any]) -> None:
    sources = ", ".join(f"{count:,} {how}" for how, count in enriched["summaries"].items())
    say(f"enriched: {enriched['servers']:,} servers, summaries: {sources or 'none'}")
    if "problem" in enriched:
        note(f"Categories are only those that were stated: {enriched['problem']}")
    asked = enriched.get("model")
    if asked and asked["asked"]:
        tokens = f"{asked['prompt_tokens']:,} + {asked['completion_tokens']:,} tokens"
        say(f"written now: {asked['asked']:,} summaries, {tokens}, {asked['price']:g}")
    if asked and asked["failed"]:
        why = ", ".join(f"{count:,} {reason}" for reason, count in asked["failed"].items())
        note(f"Some summaries are from the servers' own words, not the model's: {why}. {asked['problem']}".strip())


@contextmanager
def _listing_progress() -> Iterator[Callable[[str, int], None]]:
    with progress("Listing") as tick:
        yield lambda source, listed: tick(listed, None)


@contextmanager
def _deploy_progress() -> Iterator[Callable[[Progress], None]]:
    """A bar with rate and time left on a terminal; a line a minute elsewhere."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def line(state: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= _SAY_EVERY:
                last = time.monotonic()
                note(_standing(state))

        yield line
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("Deploying"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda state: bar.update(
            task, completed=state.done, total=state.total, description=escape(_standing(state))
        )


def _standing(state: Progress) -> str:
    left = time.strftime("%H:%M:%S", time.gmtime(min(state.left, 359_999)))
    share = state.ok / state.done if state.done else 0.0
    return (
        f"{state.done:,}/{state.total:,}, {state.ok:,} with tools ({share:.0%}), {state.rate:,.0f} an hour, {left} left"
    )


@contextmanager
def _sigterm_is_ctrl_c() -> Iterator[None]:
    """A polite kill ends as Ctrl-C does: running servers are killed, what was finished is kept."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _until_sigterm(work: Coroutine[Any, Any, _T]) -> _T:
    """What is awaited, cancelled by a polite kill: an exception raised by a signal's handler would come up in the
    middle of any task. Not by way of SIGINT, which shells let their background jobs ignore."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    outer = signal.getsignal(signal.SIGTERM)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()  # Ctrl-C cancels the one who waits
        await asyncio.gather(task, return_exceptions=True)
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, outer)
