"""``toolscout doctor``: what works here, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolscout.errors import StorageError, ToolscoutError
from toolscout.server.secrecy.secrets import MissingSecret

if TYPE_CHECKING:
    from toolscout.records import Tool
    from toolscout.server.clients.known import Client, Machine
    from toolscout.server.config import UpstreamConfig
    from toolscout.server.upstreams.pool import UpstreamPool
    from toolscout.settings import Settings

Progress = Callable[[float, float | None], None]
Status = Literal["ok", "warn", "fail"]

_PACKAGES = ("fastmcp", "mcp", "faiss-cpu", "onnxruntime", "tokenizers", "sqlmodel", "jsonschema-rs")
_NAMED = 5
_AT_ONCE = 4


@dataclass(frozen=True)
class Check:
    """One line of the diagnosis. ``fail`` means broken; ``warn`` works, but less well than it could."""

    name: str
    status: Status
    detail: str
    fix: str = ""
    seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields that say something."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}


async def examine(
    settings: Settings,
    *,
    upstreams: bool = True,
    machine: Machine | None = None,
    progress: Progress = lambda done, total: None,
) -> list[Check]:
    """All checks, in the order in which a person would fix things. Starts each configured upstream once.

    ``machine`` says where clients' configurations are looked for (default: this user's, and the current folder's).
    """
    checks = [_python(), _packages(), _home(settings)]
    progress(1, None)
    checks += [await asyncio.to_thread(_encoder, settings), await asyncio.to_thread(_catalogue, settings)]
    checks += [await asyncio.to_thread(_index, settings), await asyncio.to_thread(_pack, settings)]
    checks += await asyncio.to_thread(_sandbox, settings)
    checks += await _upstreams(settings, upstreams, progress)
    checks.append(await asyncio.to_thread(_policy, settings))
    checks.append(await asyncio.to_thread(_model, settings))
    checks.append(await asyncio.to_thread(_clients, machine))
    return checks


def _failed(name: str, error: ToolscoutError, fix: str = "") -> Check:
    return Check(name, "fail", str(error), error.hint or fix)


def _python() -> Check:
    from toolscout import __version__

    where = f"toolscout {__version__}, Python {platform.python_version()} ({sys.executable}), {platform.platform()}"
    return Check("installation", "ok", where)


def _packages() -> Check:
    versions, missing = [], []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if "faiss-cpu" in missing and importlib.util.find_spec("faiss"):
        missing.remove("faiss-cpu")  # faiss-gpu, or a build of the user's own
    if missing:
        return Check("packages", "fail", f"missing: {', '.join(missing)}", "Run: pip install --upgrade toolscout")
    return Check("packages", "ok", ", ".join(versions))


def _home(settings: Settings) -> Check:
    home = settings.home
    probe = home / f".doctor-{time.time_ns()}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return Check("home", "fail", f"{home} cannot be written: {error.strerror}.", "Set TOOLSCOUT_HOME elsewhere.")
    free = shutil.disk_usage(home).free
    if free < 200 * 1024 * 1024:
        return Check("home", "warn", f"{home}: only {free / 1e6:,.0f} MB free", "Make room on that disk.")
    return Check("home", "ok", str(home))


def _encoder(settings: Settings) -> Check:
    if settings.encoder.startswith(("st:", "openai:")):
        return Check("encoder", "ok", f"{settings.encoder} (not the embedded one; nothing to verify)")
    from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder, verify

    custom = settings.encoder not in ("", "default")
    folder = Path(settings.encoder).expanduser() if custom else encoders_folder() / DEFAULT_ENCODER
    started = time.perf_counter()
    try:
        card = verify(folder)
    except ToolscoutError as error:
        return _failed("encoder", error, "Run: pip install --force-reinstall toolscout")
    return Check("encoder", "ok", f"{card.name}, files as their SHA-256 says", seconds=time.perf_counter() - started)


def _catalogue(settings: Settings) -> Check:
    url = settings.database_url
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return Check("catalogue", "ok", "not made yet: the first start makes it")
    from toolscout.index.catalogue import Catalogue

    started = time.perf_counter()
    try:
        with Catalogue(url) as catalogue:
            found = catalogue.stats()
    except ToolscoutError as error:
        return _failed("catalogue", error, "Put a good copy of the file back, or move it away and start anew.")
    numbers = ", ".join(f"{found[key]['total']:,} {key}" for key in ("servers", "tools"))
    seconds = time.perf_counter() - started
    if held := found["tools"]["waiting"]:
        said = f"{numbers}; {held:,} of the tools wait for review and are not found"
        return Check("catalogue", "warn", said, "See: toolscout review", seconds)
    return Check("catalogue", "ok", numbers, seconds=seconds)


def _index(settings: Settings) -> Check:
    if not (settings.index_dir / "CURRENT").exists():
        fresh = settings.starter and not settings.servers_file.exists()
        if fresh:
            return Check("index", "ok", "not made yet: the first start makes it")
        return Check(
            "index", "warn", "there is none, so no tool of your servers can be found", "Run: toolscout index build"
        )
    from toolscout.index.catalogue import Catalogue
    from toolscout.index.search import SearchIndex

    started = time.perf_counter()
    try:
        index = SearchIndex.open(settings.index_dir, settings=settings)
    except ToolscoutError as error:
        return _failed("index", error, "Run: toolscout index build")
    try:
        with Catalogue(settings.database_url) as catalogue:
            behind = catalogue.revision - index.revision
        tools = len(index)
    except StorageError as error:
        return Check("index", "warn", f"opens; how fresh it is cannot be told: {error}", error.hint)
    finally:
        index.close()
    seconds = time.perf_counter() - started
    if behind:
        return Check("index", "warn", f"{tools:,} tools, older than the catalog", "Run: toolscout index build", seconds)
    return Check("index", "ok", f"{tools:,} tools, up to date", seconds=seconds)


def _pack(settings: Settings) -> Check:
    from toolscout.server.doctor.pack import examine_pack

    return examine_pack(settings)


def _sandbox(settings: Settings) -> list[Check]:
    """Whether a sandbox works here; broken only where one is asked for. Nothing to say where none could be."""
    from toolscout.server.config import ServersFile
    from toolscout.server.sandbox.box import FIX, trouble

    try:
        configured = ServersFile(settings.servers_file).load().values()
    except ToolscoutError:
        return []  # told below
    wanted = [c.name for c in configured if not c.disabled and c.policy(settings.sandbox) is not None]
    problem = trouble()
    if problem and (wanted or settings.sandbox != "off"):
        who = f"{', '.join(wanted)} will not be started" if wanted else "TOOLSCOUT_SANDBOX asks for one"
        return [Check("sandbox", "fail", f"none can be made: {problem}; {who}", FIX)]
    if problem:
        return [Check("sandbox", "ok", f"not used (and none could be made: {problem})")]
    used = f"used for {', '.join(wanted)}" if wanted else "not used: servers run with all your rights"
    return [Check("sandbox", "ok", f"bubblewrap works; {used}")]


async def _upstreams(settings: Settings, start: bool, progress: Progress) -> list[Check]:
    from toolscout.server.config import ServersFile

    file = ServersFile(settings.servers_file)
    try:
        configured = file.load()
    except ToolscoutError as error:
        return [_failed("servers", error)]
    checks = [
        Check(f"server {name}", "fail", why, f"Correct it in {file.path}, or: toolscout remove {name}")
        for name, why in file.problems.items()
    ]
    if not configured:
        if settings.starter and not settings.servers_file.exists():
            return [*checks, Check("servers", "ok", "none yet: the first start registers the starter set")]
        return [*checks, Check("servers", "warn", "none is configured", "Run: toolscout import, or toolscout add")]
    if not start:
        return checks + [
            _before_start(config, settings) or _as_it_was(config, settings) for config in configured.values()
        ]
    from toolscout.server.upstreams.pool import UpstreamPool

    gate, done = asyncio.Semaphore(_AT_ONCE), 0
    async with UpstreamPool(settings, file.load) as pool:

        async def one(config: UpstreamConfig) -> Check:
            nonlocal done
            async with gate:
                check = _before_start(config, settings) or await _start(pool, config, settings)
            done += 1
            progress(done, len(configured))
            return check

        return checks + list(await asyncio.gather(*(one(config) for config in configured.values())))


def _before_start(config: UpstreamConfig, settings: Settings) -> Check | None:
    """What can be said of an upstream without starting it, if that settles it."""
    name = f"server {config.name}"
    if config.disabled:
        return Check(name, "warn", "disabled in mcp.json", f"Run: toolscout enable {config.name}")
    if not config.command or config.references():
        return None
    from toolscout.server.launch import absent

    if absent(config, settings.sandbox):
        return Check(name, "fail", f"{config.command} is not on the PATH.", _install_hint(config.command))
    return None


def _as_it_was(config: UpstreamConfig, settings: Settings) -> Check:
    """What can be said of an upstream that is not started now."""
    from toolscout.server.upstreams.folder import last_failure

    if (failure := last_failure(settings.home, config)) is None:
        return Check(f"server {config.name}", "ok", "configured")
    return Check(f"server {config.name}", "fail", failure.shown(), f"Run: toolscout refresh {config.name}")


def _install_hint(command: str) -> str:
    name = Path(command).name
    if name in ("npx", "npm", "node"):
        return "Install Node.js: https://nodejs.org"
    if name in ("uvx", "uv"):
        return "Run: pip install uv"
    if name in ("docker", "podman"):
        return f"Install {name} and start it."
    if "/" in command or "\\" in command:
        return "The program has moved: add the server again (the starter set: toolscout add starter)."
    return f"Install {name}, or give its full path in mcp.json."


async def _start(pool: UpstreamPool, config: UpstreamConfig, settings: Settings) -> Check:
    name = f"server {config.name}"
    started = time.perf_counter()
    try:
        _, tools = await pool.list_tools(config.name, fresh=True)
    except MissingSecret as error:
        return Check(name, "fail", f"{', '.join(error.names)} not set", error.hint)
    except ToolscoutError as error:
        return Check(name, "fail", str(error), error.hint or _start_hint(config), time.perf_counter() - started)
    seconds = time.perf_counter() - started
    if not tools:
        return Check(
            name, "warn", "starts, but lists no tools", "It may want configuration; see its own pages.", seconds
        )
    if differing := await asyncio.to_thread(_differing, settings, config.name, tools):
        names = ", ".join(sorted(tool_id.rpartition("/")[2] for tool_id in differing)[:_NAMED])
        said = f"{len(tools)} tools, {len(differing)} other than approved: {names}"
        return Check(name, "warn", said, f"Run: toolscout refresh {config.name}, then toolscout review", seconds)
    return Check(name, "ok", f"{len(tools)} tools", seconds=seconds)


def _differing(settings: Settings, name: str, tools: list[Tool]) -> frozenset[str]:
    """Approved tools of the server that it lists with another text; none where the catalogue cannot say."""
    from toolscout.index.catalogue import Catalogue
    from toolscout.server.holds import held_against

    if settings.database_url.startswith("sqlite:///") and not Path(settings.database_url[10:]).exists():
        return frozenset()
    try:
        with Catalogue(settings.database_url) as catalogue:
            known = catalogue.standings(name)
            return frozenset(tool_id for tool_id in held_against(catalogue, known, tools)[0] if tool_id in known)
    except ToolscoutError:
        return frozenset()  # a check of its own says what is wrong with it


def _start_hint(config: UpstreamConfig) -> str:
    if config.url:
        return f"Check the address and whether it answers: {config.url.partition('?')[0]}"
    if "--from" in config.args and "--with" not in config.args:
        return "If it was written for an older MCP SDK: toolscout add pypi:PACKAGE --with 'mcp<2' --replace"
    return f"Run its command by hand to see what it says: {config.command}"


def _policy(settings: Settings) -> Check:
    """Whether the policy on calls can be used, and the log that it asks for be written."""
    if settings.policy is None and not os.path.lexists(settings.policy_file):
        return Check("policy", "ok", "none: every approved tool may be called")
    from toolscout.server.policy.audit import AuditLog
    from toolscout.server.policy.file import read_policy

    try:
        policy = read_policy(settings.policy_file)
        if policy.audit is not None:
            AuditLog(settings.home, policy.audit).check()
    except ToolscoutError as error:
        return _failed("policy", error)
    detail = f"{settings.policy_file}: {policy.in_short()}"
    if os.name == "posix" and settings.policy_file.stat().st_mode & 0o022:
        return Check("policy", "warn", f"{detail}; others may write it", f"Run: chmod go-w {settings.policy_file}")
    return Check("policy", "ok", detail)


def _model(settings: Settings) -> Check:
    if settings.model_url:
        return _endpoint(settings)
    from toolscout.index.asset import file_sha256
    from toolscout.server.adapters import packaged_adapters
    from toolscout.server.models import ModelStore

    try:
        model = ModelStore(settings).resolve()
    except ToolscoutError as error:
        return _failed("model", error)
    if model is None:
        detail = "none: suggest shows the best tool and an empty call"
        return Check(
            "model",
            "warn",
            detail,
            "Run: toolscout model pull toolscout-smollm2-135m, and pip install 'toolscout[local]'",
        )
    if importlib.util.find_spec("xllamacpp") is None:
        return Check("model", "warn", f"{model.name} cannot be run here", "Run: pip install 'toolscout[local]'")
    adapter = packaged_adapters().get(model.name)
    if adapter is None:
        return Check("model", "ok", f"{model.name} ({model.size / 1e6:,.0f} MB), in this process")
    if file_sha256(adapter.path) != adapter.sha256:
        return Check("model", "fail", f"{adapter.path} is damaged", "Run: pip install --force-reinstall toolscout")
    return Check("model", "ok", f"{model.name} ({adapter.title}) over {adapter.base}, in this process")


def _clients(machine: Machine | None) -> Check:
    """Which clients start Toolscout, and whether what they start is still there."""
    from toolscout.server.clients.known import CLIENTS
    from toolscout.server.clients.known import Machine as ThisMachine
    from toolscout.server.clients.read import is_toolscout, read_client

    machine = machine or ThisMachine()
    connected: list[Client] = []
    stale: list[Client] = []
    for client in CLIENTS.values():
        for entry in read_client(client, machine).entries:
            if not entry.config or not is_toolscout(entry.name, entry.config):
                continue
            command = str(entry.config.get("command") or "")
            alive = not command or shutil.which(command) is not None
            (connected if alive else stale).append(client)
    if stale:
        names = ", ".join(dict.fromkeys(c.title for c in stale))
        fix = "Run: " + " and ".join(dict.fromkeys(f"toolscout connect {c.id}" for c in stale))
        return Check("clients", "fail", f"{names} would start a Toolscout that is not there any more", fix)
    if not connected:
        return Check("clients", "warn", "none is connected", f"Run: toolscout connect CLIENT ({', '.join(CLIENTS)})")
    return Check("clients", "ok", ", ".join(dict.fromkeys(c.title for c in connected)))


def _endpoint(settings: Settings) -> Check:
    import httpx

    from toolscout.server.backends.tuning import bare_name

    url = settings.model_url.rstrip("/") + "/models"
    headers = {"Authorization": f"Bearer {settings.model_key}"} if settings.model_key else {}
    started = time.perf_counter()
    try:
        answer = httpx.get(url, headers=headers, timeout=10)
        answer.raise_for_status()
        names = [str(m.get("id")) for m in answer.json().get("data", [])]
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        fix = "Check TOOLSCOUT_MODEL_KEY." if code in (401, 403) else "Check TOOLSCOUT_MODEL_URL (it ends in /v1)."
        return Check("model", "fail", f"{url} answered {code}.", fix)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, AttributeError) as error:
        return Check(
            "model", "fail", f"{url} does not answer as expected: {error}.", "Start it, or check TOOLSCOUT_MODEL_URL."
        )
    seconds = time.perf_counter() - started
    if settings.model and names and settings.model not in {*names, *map(bare_name, names)}:
        return Check("model", "fail", f"{url} has no {settings.model}.", f"It has: {', '.join(names[:5])}", seconds)
    return Check(
        "model", "ok", f"{settings.model or (names or ['a model'])[0]} at {settings.model_url}", seconds=seconds
    )
