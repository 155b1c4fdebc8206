"""Packages of the npm registry: bun where it is there, else npm; scripts off either way."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from toolscout.crawler.failures import DeployError, Failure
from toolscout.crawler.install.base import (
    Entry,
    Installed,
    Installer,
    Metadata,
    Shop,
    client_environment,
    ranked,
    told,
)
from toolscout.crawler.sandbox import install_uid

_FOR_BUN = re.compile(r"\bbun\b|Stripping types is currently unsupported|Unknown file extension \"\.[mc]?tsx?\"", re.I)
_NAME = re.compile(r"(?:@[a-z0-9~_.-]+/)?[A-Za-z0-9~_.-]+")


class NpmInstaller(Installer):
    """Installs npm packages.

    Args:
        client: ``bun``, ``npm``, or ``auto``: bun first, which takes a fraction of the time, and npm where bun fails.
    """

    registry: ClassVar[str] = "npm"

    def __init__(self, shop: Shop, client: str = "auto") -> None:
        self._shop = shop
        self.node = shutil.which("node") or ""
        bun = shutil.which("bun") if client in ("auto", "bun") else None
        npm = shutil.which("npm") if client in ("auto", "npm") else None
        self._clients = [c for c in (("bun", bun), ("npm", npm)) if c[1] is not None]
        self._bun = shutil.which("bun")
        self.problems = [] if self.node else ["there is no node on the path"]
        if not self._clients:
            self.problems.append("there is no bun or npm on the path" if client == "auto" else f"there is no {client}")
        prefix = Path(self.node).resolve().parents[1] if self.node else Path("/usr")
        self._prefix: tuple[Path, ...] = () if prefix.is_relative_to("/usr") else (prefix,)
        if npm is not None:
            _copy_config(npm, shop)

    @property
    def usable(self) -> bool:
        """Whether Node.js and a client are here."""
        return bool(self.node and self._clients)

    def keep_starting(self, refusal: Callable[[Entry], str]) -> None:
        """See `Installer.keep_starting`."""
        node = Entry("node", (self.node, "--version"), self._prefix)
        if self.node and (why := refusal(node)):
            self.problems.append(f"{self.node} does not start in the sandbox: {why}")
            self.node = ""
        if self._bun and (why := refusal(self._on_bun(Entry("bun", ("bun", "--version"))))):
            self.problems.append(f"{self._bun} does not start in the sandbox: {why}")
            self._bun = None

    async def install(
        self, folder: Path, package: str, version: str | None, pin: str | None = None, extra: str = ""
    ) -> Installed:
        """See `Installer.install`. ``pin`` is npm's ``--before``; bun has none, so npm does it."""
        if not _NAME.fullmatch(package):
            raise DeployError(Failure.INSTALL, "bad_name", f"{package!r} is no npm package name")
        manifest = {"name": "crawl", "private": True, "dependencies": {package: version or "latest"}}
        said = ""
        for client, program in self._clients:
            if pin and client == "bun":
                continue
            shutil.rmtree(folder / "node_modules", ignore_errors=True)
            write_own(folder / "package.json", json.dumps(manifest))
            assert program is not None
            status, said = await self._shop.run(self._line(client, program, pin), folder, self._env())
            if status == 0 and (folder / "node_modules" / package / "package.json").is_file():
                return self._installed(folder, package, pin)
            if _final(said):
                break
        raise DeployError(Failure.INSTALL, _cause(said), said)

    def other_runtime(self, entry: Entry, said: str) -> Entry | None:
        """Bun, for what was written for it, and for TypeScript, which Node.js runs from no package."""
        return self._on_bun(entry) if self._bun and _FOR_BUN.search(said) else None

    def _on_bun(self, entry: Entry) -> Entry:
        assert self._bun is not None
        binary = Path(self._bun).resolve()
        seen = () if binary.is_relative_to("/usr") else (binary.parent,)
        argv = (str(binary), *entry.argv[1:])
        return replace(entry, argv=argv, readable=(*entry.readable, *seen), launcher="bunx")

    def _line(self, client: str, program: str, pin: str | None) -> list[str]:
        if client == "bun":
            return [program, "install", "--ignore-scripts", "--production", "--no-progress", "--no-save", "--silent"]
        line = [program, "install", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-package-lock"]
        line += ["--prefer-offline", "--no-progress", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=30000"]
        return [*line, f"--before={pin}"] if pin else line

    def _env(self) -> Mapping[str, str]:
        cache = self._shop.cache
        folders = {"npm_config_cache": cache / "npm", "BUN_INSTALL_CACHE_DIR": cache / "bun"}
        env = {name: str(path) for name, path in folders.items()}
        env["npm_config_userconfig"] = str(self._shop.config / ".npmrc")
        if self._prefix:
            env["PATH"] = f"{self._prefix[0] / 'bin'}:{client_environment()['PATH']}"
        return env

    def _installed(self, folder: Path, package: str, pin: str | None) -> Installed:
        own = folder / "node_modules" / package
        try:
            manifest = json.loads((own / "package.json").read_text("utf-8-sig", "replace"))
        except (OSError, ValueError) as error:
            raise DeployError(Failure.INSTALL, "broken_manifest", str(error)) from None
        if not isinstance(manifest, dict):
            raise DeployError(Failure.INSTALL, "broken_manifest", "package.json holds no object")
        entries = [
            Entry(name, (self.node, str(own / path)), self._prefix)
            for name, path in _bins(manifest, package).items()
            if (own / path).resolve().is_relative_to(own.resolve()) and (own / path).is_file()
        ]
        missing = [p for p in _bins(manifest, package).values() if not (own / p).is_file()]
        if missing and not entries:
            raise DeployError(
                Failure.NO_ENTRY_POINT, "missing_file", f"bin names {missing[0]}, which is not in the package"
            )
        order = ranked([e.name for e in entries], package)
        entries.sort(key=lambda e: order.index(e.name))
        return Installed(folder, metadata(manifest, package), entries, (own,), self._shop.sized(folder), pin)


def metadata(manifest: Mapping[str, Any], package: str) -> Metadata:
    """What a package.json says, whatever types it has there."""

    def text(value: Any) -> str:
        return value.strip() if isinstance(value, str) else ""

    licence = manifest.get("license")
    if isinstance(licence, dict):
        licence = licence.get("type")
    repository = manifest.get("repository")
    repository = repository.get("url") if isinstance(repository, dict) else repository
    home = text(manifest.get("homepage")) or text(repository)
    keywords = manifest.get("keywords")
    engines = manifest.get("engines")
    names: list[str] = []
    for kind in ("dependencies", "peerDependencies", "optionalDependencies", "bundledDependencies"):
        given = manifest.get(kind)
        names += list(given) if isinstance(given, dict | list) else []
    return Metadata(
        name=package,
        version=text(manifest.get("version")),
        description=text(manifest.get("description")),
        license=text(licence) or None,
        homepage=re.sub(r"^git\+|\.git$", "", home) or None,
        keywords=tuple(k for k in keywords if isinstance(k, str)) if isinstance(keywords, list) else (),
        dependencies=tuple(dict.fromkeys(str(n) for n in names)),
        requires_runtime=text(engines.get("node")) or None if isinstance(engines, dict) else None,
    )


def _bins(manifest: Mapping[str, Any], package: str) -> dict[str, str]:
    given = manifest.get("bin")
    if isinstance(given, str):
        return {package.rpartition("/")[2]: given}
    if isinstance(given, dict):
        return {str(k): v for k, v in given.items() if isinstance(v, str) and v}
    return {}


def _copy_config(npm: str, shop: Shop) -> None:
    """The user's npm configuration (registry addresses, their keys) for the installing user's eyes only."""
    source = Path(told([npm, "config", "get", "userconfig"]) or "/nonexistent")
    if source.is_file() and os.access(source, os.R_OK):
        write_own(shop.config / ".npmrc", source.read_text("utf-8", "replace"), 0o400)


def npm_registry() -> str | None:
    """The address of the user's npm registry, as npm itself has it; None without npm."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    address = told([npm, "config", "get", "registry"])
    return address.rstrip("/") if address.startswith(("http://", "https://")) else None


def write_own(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that belongs to the installing user."""
    path.unlink(missing_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, install_uid(), install_uid())


def _final(said: str) -> bool:
    """Whether another client would fail alike."""
    return _cause(said) in ("not_there", "workspace_reference", "disk_full")


def _cause(said: str) -> str:
    for cause, pattern in (
        ("disk_full", r"ENOSPC|No space left"),
        ("workspace_reference", r"workspace:|EUNSUPPORTEDPROTOCOL|Workspace dependency"),
        ("file_reference", r"file:\.\.|ENOENT[^\n]*package\.json|Could not find package\.json for \"file:"),
        ("not_there", r"\bE404\b|404 Not Found|ETARGET|No matching version|No version matching|notarget| - 404"),
        ("refused", r"\bE40[13]\b|40[13] (?:Forbidden|Unauthorized)"),
        ("wrong_platform", r"EBADPLATFORM|EBADENGINE"),
        ("conflict", r"ERESOLVE"),
        ("other_host", r"ETIMEDOUT|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ConnectionRefused|network"),
    ):
        if re.search(pattern, said):
            return cause
    return "failed"
