"""The servers of a run: those of an ``mcp.json``, or the set's own, installed as a crawl does and sandboxed."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.errors import BadInput, NotAllowed, NotFound, ToolscoutError, UpstreamError
from toolscout.eval.agent.tasks import Coordinates
from toolscout.eval.rows import Say
from toolscout.records import JsonObject, Review
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.crawler.sandbox import Sandbox
    from toolscout.server.config import UpstreamConfig

_TRIAL_SECONDS = 3600
"""Processor seconds that a sandboxed server gets in a trial, twice as many of the clock."""


@dataclass(frozen=True)
class Fleet:
    """The servers of a run by name, as entries of an ``mcp.json``; ``uid`` is the user that they run as."""

    entries: Mapping[str, UpstreamConfig]
    uid: int = 0
    how: str = "as configured"


def configured(path: Path, folder: Path, pages: str) -> Fleet:
    """Servers of a file in the usual ``mcpServers`` form, ``{folder}`` and ``{pages}`` in it replaced.

    They are the user's own and run as they are configured: no sandbox. Raises NotFound for no file, BadInput for one
    that has none or a broken entry.
    """
    from toolscout.server.config import ServersFile, UpstreamConfig

    _need(path)
    file = ServersFile(path)
    found = file.load()
    if file.problems:
        raise BadInput(f"{path}: {next(iter(file.problems.values()))}", "Mend it, or take the server out.")
    usable = {name: config for name, config in found.items() if not config.disabled}
    if not usable:
        raise BadInput(f"{path} configures no server.", "Give a file with an object 'mcpServers'.")
    return Fleet({name: UpstreamConfig.parse(name, _put(dict(c.fields), folder, pages)) for name, c in usable.items()})


def servers_mark(path: Path) -> str:
    """Changes with what the file says. Raises as `configured` does."""
    _need(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _need(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"There is no file {path}.", "Name an mcp.json with --servers.")


async def by_coordinates(
    servers: Mapping[str, Coordinates], folder: Path, pages: str, work: Path, sandbox: str, say: Say
) -> Fleet:
    """Install the set's servers under ``work`` and make entries that run each in a sandbox.

    A server there can write to the task's folder and nowhere else, and has no network unless its coordinates say that
    it needs one. Later runs install again, from caches that stay. ``sandbox``: ``bubblewrap``, or ``none`` to run them
    as any configured server, with our own rights. Raises NotAllowed where there is no bubblewrap, UpstreamError for a
    package that cannot be installed.
    """
    from toolscout.crawler.limits import Limits
    from toolscout.crawler.sandbox import Job, choose
    from toolscout.crawler.station import open_installers
    from toolscout.eval.agent.state import GIT_ENV
    from toolscout.server.config import UpstreamConfig

    if sandbox not in ("bubblewrap", "none"):
        raise BadInput(f"There is no sandbox '{sandbox}' for agents.", "Known are: bubblewrap, none.")
    place = choose(sandbox)
    await asyncio.to_thread(work.mkdir, parents=True, exist_ok=True)
    installers = open_installers(work, Limits())
    entries = {}
    for name, at in servers.items():
        target = work / "servers" / name
        argv, readable = await _installed(name, at, target, installers, say)
        args = [_put(arg, folder, pages) for arg in at.args]
        env = {**GIT_ENV, **at.env}
        if place.confined:
            limits = Limits(seconds=_TRIAL_SECONDS)
            job = Job([*argv, *args], env=env, readable=[target, *readable], limits=limits)
            line = opened(place, job, folder, network=at.network)
            entries[name] = UpstreamConfig.stdio(name, line[0], line[1:])
        else:
            entries[name] = UpstreamConfig.stdio(name, argv[0], [*argv[1:], *args], env=env, cwd=str(folder))
    return Fleet(entries, place.uid(0) if place.confined else 0, place.name)


def opened(sandbox: Sandbox, job: Any, folder: Path, *, network: bool) -> list[str]:
    """The command line of a sandboxed job that may also write to ``folder`` and, with ``network``, connect.

    Only bubblewrap's is understood. Raises NotAllowed for another one.
    """
    line = sandbox.command(job)
    try:
        end = next(i for i in range(len(line) - 1) if line[i] == "--remount-ro" and line[i + 1] == "/")
        alone = line.index("--unshare-all")
    except (StopIteration, ValueError):
        raise NotAllowed(f"The sandbox {sandbox.name} cannot be opened for a folder.", "Use bubblewrap.") from None
    line[end:end] = ["--bind", str(folder), str(folder)]
    if network:
        line[alone + 1 : alone + 1] = ["--share-net"]
    return line


async def build_home(fleet: Fleet, settings: Settings, say: Say) -> int:
    """Configure the servers in the settings' home, list their tools and index them; returns how many can be found.

    Raises UpstreamError naming a server that cannot be listed, or all of whose tools wait for review: an arm without
    it would not be compared fairly. Single tools that wait are said, and only the arm with all tools has them.
    """
    from toolscout.server.config import ServersFile
    from toolscout.server.engine import Engine

    file = ServersFile(settings.servers_file)
    file.save(fleet.entries)
    async with Engine(settings) as engine:
        for name in fleet.entries:
            say(f"listing the tools of {name}")
            try:
                await engine.refresh_server(name, reindex=False)
            except ToolscoutError as error:
                raise UpstreamError(f"The server {name} cannot be started: {error}", error.hint) from None
        await engine.reindex()
        listed = list(engine.catalogue.tools())
    held = [tool for tool in listed if tool.review is not Review.APPROVED]
    for name in fleet.entries:
        if all(tool in held for tool in listed if tool.server_id == name):
            found = [f["message"] for tool in held if tool.server_id == name for f in tool.findings]
            why = found[0].rstrip(".") if found else "it lists none"
            raise UpstreamError(
                f"No tool of the server {name} can be found: {why}.", "Leave it out, or mend what is found suspicious."
            )
    if held:
        say(f"{len(held)} tools wait for review and are not found: {', '.join(tool.tool_id for tool in held)}")
    return len(listed) - len(held)


def lend_model(settings: Settings, own: Settings) -> None:
    """Let the throw-away home use the models that are pulled in the user's: an adapter needs its base beside it."""
    if not own.model_url and own.models_dir.is_dir():
        settings.models_dir.symlink_to(own.models_dir.absolute(), target_is_directory=True)


async def _installed(
    name: str, at: Coordinates, target: Path, installers: Mapping[str, Any], say: Say
) -> tuple[list[str], Sequence[Path]]:
    from toolscout.crawler.failures import DeployError
    from toolscout.crawler.install.base import own_folder

    installer = installers.get(at.registry)
    if installer is None:
        raise NotAllowed(f"Nothing here installs {at.registry} packages, and {name} is one.", "Install Node.js, or uv.")
    say(f"installing {at.package}")
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    own_folder(target)
    try:
        found = await installer.install(target, at.package, at.version, at.until)
    except DeployError as error:
        raise UpstreamError(f"{at.package} cannot be installed: {error.verdict}.") from None
    wanted = [entry for entry in found.entries if not at.command or entry.name == at.command]
    if not wanted:
        raise UpstreamError(f"{at.package} has no command{f' {at.command}' * bool(at.command)}.")
    return list(wanted[0].argv), wanted[0].readable


def _put(value: Any, folder: Path, pages: str) -> Any:
    if isinstance(value, str):
        return value.replace("{folder}", str(folder)).replace("{pages}", pages).replace("{python}", sys.executable)
    if isinstance(value, list):
        return [_put(inner, folder, pages) for inner in value]
    if isinstance(value, dict):
        return {key: _put(inner, folder, pages) for key, inner in value.items()}
    return value


def shown(entries: Mapping[str, UpstreamConfig]) -> list[JsonObject]:
    """What a result says of the servers: names and how each is reached, no values."""
    return [{"name": name, "transport": str(config.transport)} for name, config in entries.items()]
