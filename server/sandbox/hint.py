"""A failure in a sandbox for want of the network, a host or a folder: what a person types to open it.

A server's own words decide only that something is missing, never what shall be opened: it could ask for anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolscout.bubblewrap import SYSTEM
from toolscout.records import JsonObject
from toolscout.server.sandbox.policy import Policy
from toolscout.server.sandbox.view import alone, is_broad

if TYPE_CHECKING:
    from toolscout.server.config import UpstreamConfig

_NETWORK = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ECONNREFUSED)\b|getaddrinfo|name resolution|name or service not"
    r"|(could not|couldn.t|cannot|failed to|unable to) (resolve|connect|establish)|no such host|network is unreachable"
    r"|fetch failed|connection refused|connection (attempts )?failed|ConnectError|ERR_(INTERNET|NAME_NOT|NETWORK)"
    r"|error sending request|network error|among the hosts that this server.s sandbox may reach|tunnel.* failed",
    re.IGNORECASE,
)
_FILES = re.compile(
    r"\b(ENOENT|EACCES|EROFS|EPERM)\b|no such file|read-only file|permission denied|(does|do)(n.t| not) exist|not found"
    r"|FileNotFound|PermissionError|NoSuchPath|not a (valid )?(git )?(directory|repository|file)|cannot (open|access)",
    re.IGNORECASE,
)
_UNWRITABLE = re.compile(r"\bEROFS\b|read-only file", re.IGNORECASE)
_FORBIDDEN = re.compile(r"\b(EACCES|EROFS|EPERM)\b|read-only file|permission denied|PermissionError", re.IGNORECASE)
_ELSEWHERE = re.compile(r"^.*(127\.0\.0\.1|localhost|\[?::1\]?).*$", re.MULTILINE)
"""Nothing listens on this machine's own address: no matter of the sandbox alone."""
_PATH = re.compile(r"(?<![\w/.:])/[^\s'\":,()\[\]]+")
_SAYS_FAILED = re.compile(r"\W*(an? )?(unexpected )?(error|failed|failure|unable|could not|cannot)\b", re.IGNORECASE)
_SHORT = 500
_MOST_WORDS = 100


def start_hint(config: UpstreamConfig, policy: Policy, said: str) -> str:
    """For a server that did not start in its sandbox; empty where its words, ``said``, do not look like that."""
    if hint := call_hint(config, policy, _ELSEWHERE.sub("", said), {}, reads=False):
        return hint
    if _FORBIDDEN.search(said) or (_FILES.search(said) and any(map(_hidden, _PATH.findall(said)))):
        return (
            f"It ran in a sandbox, where it {policy.shown()}. If it needs a file or a folder, a person can open it:"
            f" {_command(config.name)} --allow-read PATH (or --allow-write PATH)"
        )
    return ""


def call_hint(config: UpstreamConfig, policy: Policy, said: str, arguments: Mapping[str, Any], *, reads: bool) -> str:
    """What to add to a failed call's own words, ``said``; empty where the sandbox of ``policy`` does not explain it.

    ``reads``: the tool changes nothing.
    """
    given = list(_words(arguments))[:_MOST_WORDS]
    if policy.network is not True and _NETWORK.search(said):
        if not policy.network:
            return _sentence(config.name, "has no network", "--allow-network")
        host = next(filter(None, map(_host, given)), "HOST")
        return _sentence(config.name, f"reaches {', '.join(policy.network)} alone", "--allow-host", host)
    if not _FILES.search(said):
        return ""
    # Of the entry's own words those that the failure is about; of the call's any.
    own = [word for word in (*config.args, *config.env.values()) if word and word in said]
    for path in filter(None, map(_path, [*given, *own])):
        writes = bool(_UNWRITABLE.search(said)) or not (reads or path.exists())
        wanted = path.parent if writes and not path.is_dir() else path
        seen = policy.write if writes else (*policy.read, *policy.write)
        if is_broad(wanted):
            return f"'{config.name}' runs in a sandbox. {alone(config.name, path)}"
        if wanted.exists() and not any(wanted.is_relative_to(folder) for folder in seen):
            what = ", ".join(map(str, (*policy.read, *policy.write)))
            option = "--allow-write" if writes else "--allow-read"
            return _sentence(
                config.name, f"sees {what} alone" if what else "sees no files of yours", option, str(wanted)
            )
    return ""


def failed_words(result: JsonObject) -> str:
    """What a tool's result says, if it is an error or a short text that says so, as many servers give; else nothing."""
    said = "\n".join(str(block["text"]) for block in result.get("content") or () if block.get("text"))
    return said if result.get("isError") or (len(said) <= _SHORT and _SAYS_FAILED.match(said)) else ""


def _sentence(name: str, what: str, option: str, value: str = "") -> str:
    command = " ".join([_command(name), option, *([shlex.quote(value)] if value else [])])
    return f"'{name}' runs in a sandbox and {what}. A person can open more: {command}"


def _command(name: str) -> str:
    return f"toolscout set {shlex.quote(name)}"


def _words(value: object) -> Iterator[str]:
    """The texts in a call's arguments."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner)


def _hidden(text: str) -> bool:
    """Whether a path is there outside of the sandbox, in nobody's folders of programs."""
    path = Path(text)
    return not any(path.is_relative_to(folder) for folder in SYSTEM) and path.exists()


def _host(word: str) -> str:
    try:
        return urlsplit(word).hostname or "" if "://" in word[:10] else ""
    except ValueError:
        return ""


def _path(word: str) -> Path | None:
    """A full path that can be asked for; None where the text is none."""
    word = word.removeprefix("file://")
    if not word.startswith(("/", "~/")) or len(word) > 1000 or not word.isprintable():
        return None
    path = Path(word).expanduser()
    return path if path.parent != path and ".." not in path.parts else None
