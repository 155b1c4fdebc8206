"""Servers of clients' configurations as a source.

Reading the configurations' dialects is the server room's affair, a sibling; whoever stands above both (the command
line) reads them there and hands plain entries over.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from toolscout.crawler.arguments import recordable, recordable_url, token_like
from toolscout.crawler.dummies import is_secret
from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.sources.base import Batch, Found, Source, Verdict, package_id
from toolscout.records import EnvVar, Install, Server, Transport
from toolscout.records import Source as Place

_NPM_NAME = re.compile(r"(?:@[a-z0-9~][\w.~-]*/)?[a-z0-9~][\w.~-]*", re.I)
_PROGRAM = re.compile(r"[A-Za-z][\w.-]{0,40}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    # Of a file its name: its folders are somebody's.
    file = re.split(r"[\\/]", entry.place)[-1]
    place = Place(marketplace="clients", id=f"{file}/{entry.name}")
    if config.get("url"):
        url, _ = recordable_url(str(config["url"]))
        headers = config.get("headers")
        names = _REFERENCE.findall(" ".join(map(str, headers.values()))) if isinstance(headers, Mapping) else []
        server = Server(
            server_id=f"clients/{entry.name}",
            name=entry.name,
            sources=[place],
            transport=Transport.SSE if config.get("transport") == "sse" else Transport.HTTP,
            install=Install(
                registry="url",
                url=url or None,
                env=[EnvVar(name=n, required=True, secret=True) for n in dict.fromkeys(names)],
            ),
        )
        return Found(server, Verdict.SERVER, "configured")
    command, args = str(config.get("command") or ""), [str(a) for a in config.get("args") or ()]
    registry, package, version, rest = package_of(command, args)
    given = config.get("env")
    env = [
        EnvVar(name=str(n), required=True, secret=is_secret(str(n)))
        for n in (given if isinstance(given, Mapping) else ())
        if _VARIABLE.fullmatch(str(n))
    ]
    kept = recordable(rest if package else ())
    server = Server(
        server_id=package_id(registry, package) if package else f"clients/{entry.name}",
        name=entry.name,
        sources=[place],
        version=version,
        install=Install(
            registry=registry,
            package=package,
            version=version,
            command=None if package else _program(command),
            args=list(kept.shown),
            env=env,
        ),
    )
    return Found(server, Verdict.SERVER, "configured", marker=version, args=kept.run)


def _program(command: str) -> str | None:
    """The name of a command's program, without its folder: some configurations hold a whole command line there."""
    words = [w for w in command.strip().split() if "=" not in w]
    name = words[0].replace("\\", "/").rpartition("/")[2] if words else ""
    return name if _PROGRAM.fullmatch(name) and not token_like(name) else None


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
        if not _NPM_NAME.fullmatch(package[:1] + bare):
            return "none", None, None, list(args)
        return "npm", package[0] + bare, version if re.fullmatch(r"\d[\w.+-]{0,40}", version) else None, words
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
