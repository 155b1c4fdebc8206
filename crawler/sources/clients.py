"""Servers of clients' configurations as a source.

Reading the configurations' dialects is the server room's affair, a sibling; whoever stands above both (the command
line) reads them there and hands plain entries over.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from toolscout.crawler.dummies import is_secret
from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.sources.base import Batch, Found, Source, Verdict, package_id
from toolscout.records import EnvVar, Install, Server, Transport
from toolscout.records import Source as Place

_PLAIN = re.compile(r"--?[A-Za-z][\w-]{0,40}|[a-z]{1,12}")
"""Arguments that cannot be a secret, a path or an address of somebody."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Configured:
    """One server of a configuration: ``{command, args, env}`` or ``{url, headers}``. May hold secrets: never shown."""

    name: str
    config: Mapping[str, Any] = field(repr=False)
    place: str = "file"
    """The client or file it is from."""


class ClientSource(Source):
    """Servers that clients have configured. Only npm and PyPI packages are deployed; no value of a variable is kept."""

    name: ClassVar[str] = "clients"
    complete: ClassVar[bool] = False

    def __init__(self, entries: Sequence[Configured]) -> None:
        self._entries = entries

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`. There is one batch."""
        yield Batch([_found(entry) for entry in self._entries], None)


def _found(entry: Configured) -> Found:
    config = entry.config
    place = Place(marketplace="clients", id=f"{entry.place}/{entry.name}")
    if config.get("url"):
        url = re.sub(r"[?#].*", "", str(config["url"]))
        headers = config.get("headers")
        names = _REFERENCE.findall(" ".join(map(str, headers.values()))) if isinstance(headers, Mapping) else []
        server = Server(
            server_id=f"clients/{entry.name}",
            name=entry.name,
            sources=[place],
            transport=Transport.SSE if config.get("transport") == "sse" else Transport.HTTP,
            install=Install(
                registry="url", url=url, env=[EnvVar(name=n, required=True, secret=True) for n in dict.fromkeys(names)]
            ),
        )
        return Found(server, Verdict.SERVER, "configured")
    command, args = str(config.get("command") or ""), [str(a) for a in config.get("args") or ()]
    registry, package, version, rest = package_of(command, args)
    given = config.get("env")
    env = [
        EnvVar(name=str(n), required=True, secret=is_secret(str(n)))
        for n in (given if isinstance(given, Mapping) else ())
    ]
    server = Server(
        server_id=package_id(registry, package) if package else f"clients/{entry.name}",
        name=entry.name,
        sources=[place],
        version=version,
        install=Install(
            registry=registry,
            package=package,
            version=version,
            command=None if package else command,
            args=[a if _PLAIN.fullmatch(a) else "<argument>" for a in rest] if package else [],
            env=env,
        ),
    )
    return Found(
        server, Verdict.SERVER, "configured", marker=version, args=tuple(rest) if package and not _secret(rest) else ()
    )


def _secret(args: Sequence[str]) -> bool:
    return any(is_secret(a.partition("=")[0]) and a.startswith("-") for a in args) or any("${" in a for a in args)


def package_of(command: str, args: Sequence[str]) -> tuple[str, str | None, str | None, list[str]]:
    """Registry, package, version and the remaining arguments of a launcher's command line; ``none`` for others."""
    name = re.sub(r"(?i)\.(cmd|exe)$", "", command.replace("\\", "/").rpartition("/")[2]).lower()
    words = list(args)
    if (name, words[:2]) in (("uv", ["tool", "run"]),):
        name, words = "uvx", words[2:]
    if (name == "bun" and words[:1] == ["x"]) or (name in ("npm", "pnpm") and words[:1] in (["exec"], ["dlx"])):
        name, words = "npx", words[1:]
    if name in ("npx", "bunx"):
        package = None
        while words and words[0].startswith("-"):
            flag = words.pop(0)
            if flag in ("-p", "--package") and words:
                package = words.pop(0)
            elif flag.startswith("--package="):
                package = flag.partition("=")[2]
            elif flag == "--":
                break
        if words:
            first = words.pop(0)
            package = package or first
        if package is None:
            return "none", None, None, list(args)
        bare, _, version = package[1:].partition("@")
        return "npm", package[0] + bare, version if re.match(r"\d", version) else None, words
    if name in ("uvx", "pipx"):
        if name == "pipx" and words[:1] == ["run"]:
            words.pop(0)
        package = None
        while words and words[0].startswith("-"):
            flag = words.pop(0)
            if flag in ("--from", "--spec") and words:
                package = words.pop(0)
            elif flag in ("--with", "--python", "-p", "--index", "--index-url", "--exclude-newer") and words:
                words.pop(0)
            elif flag.startswith("--from="):
                package = flag.partition("=")[2]
        if words:
            first = words.pop(0)
            package = package or first
        match = re.fullmatch(
            r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?(?:(?:==|@)(\d[\w.+!-]*)|@latest)?", package or ""
        )
        if match is not None:
            return "pypi", match[1], match[2], words
    return "none", None, None, list(args)
