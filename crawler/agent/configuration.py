"""Server configurations as marketplaces print them (``{"mcpServers": {...}}``), read into records.

Values of environment variables never leave this file: a page may show somebody's key.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from toolscout.crawler.arguments import recordable, recordable_url, token_like
from toolscout.records import EnvVar, Install, JsonObject, Transport

CONTAINERS = ("mcpServers", "mcp_servers", "servers", "context_servers")
"""Keys under which clients keep their servers."""

_BUDGET = 3_000_000
"""Characters looked at within one text: braces that never close would cost their square."""
_NPM_NAME = re.compile(r"(?:@[a-z0-9~_-][a-z0-9._~-]*/)?[a-z0-9~_-][a-z0-9._~-]*", re.I)
_PYPI_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", re.I)
_SECRET = re.compile(r"key|token|secret|passw|pwd|credential|auth|bearer|cookie|session", re.I)
_PLACEHOLDER = re.compile(
    r"^$|<|>|\$\{|\{\{|\byour\b|your[_-]|xxx|\.\.\.|^\*+$|replace|changeme|placeholder|example", re.I
)
_NPX_VALUE_FLAGS = frozenset({"-p", "--package", "-c", "--call", "-w", "--workspace", "--registry", "--cache"})
_UVX_VALUE_FLAGS = frozenset(
    {"--from", "--with", "--python", "-p", "--index", "--index-url", "--extra-index-url", "--spec", "--directory"}
)
_DOCKER_FLAGS = frozenset(
    {"-i", "-t", "-it", "-ti", "-d", "--rm", "--init", "--interactive", "--tty", "--privileged", "--read-only", "-P"}
)


@dataclass(frozen=True)
class Configured:
    """One server as a configuration states it. ``args`` are those after the package, dummies for what is somebody's."""

    name: str
    install: Install
    transport: Transport
    args: tuple[str, ...] = ()
    version: str | None = None
    needs_key: bool = False


@dataclass
class Readout:
    """What a text holds: ``found`` in order, and one sentence for each piece that looks like one but can't be read."""

    found: list[Configured] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_configurations(text: str) -> Readout:
    """Every server configuration within a page's text, whatever stands around it.

    Comments and trailing commas are forgiven: pages are full of them.
    """
    out = Readout()
    for piece, value in _objects(text):
        if value is None:
            if any(f'"{key}"' in piece for key in CONTAINERS):
                out.problems.append(f"a configuration that is no JSON: {' '.join(piece.split())[:80]}")
            continue
        for name, entry in _entries(value):
            configured = read_entry(name, entry)
            if configured is not None and configured not in out.found:
                out.found.append(configured)
    return out


def best(found: Iterable[Configured]) -> Configured | None:
    """The one to keep: a package that can be installed, before a remote address, before an image, before the rest."""
    order = {"npm": 0, "pypi": 0, "url": 1, "oci": 2}
    return min(found, key=lambda c: order.get(c.install.registry, 3), default=None)


def read_entry(name: str, entry: JsonObject) -> Configured | None:
    """One entry of a configuration; None if it says neither a command nor an address."""
    env = [_variable(n, v) for n, v in _object(entry.get("env")).items() if _is_variable(n)]
    needs_key = any(v.required and v.secret for v in env)
    url = next((entry[k] for k in ("url", "serverUrl", "httpUrl") if isinstance(entry.get(k), str)), "")
    if url:
        return _remote(name, url, env, kind=str(entry.get("type") or entry.get("transport") or ""), entry=entry)
    command, args = entry.get("command"), entry.get("args")
    words = [str(a) for a in args if isinstance(a, str | int | float)] if isinstance(args, list) else []
    if isinstance(command, list):  # some clients: the command line as one list
        command, words = (str(command[0]) if command else ""), [*map(str, command[1:]), *words]
    if not isinstance(command, str) or not command.strip():
        return None
    if not words and " " in command.strip():
        command, *words = _split(command)
    program, words = _unwrap(_program(command), words)
    bridged = _bridged(words) if program in ("npx", "bunx", "node") else ""
    if bridged:
        return _remote(name, bridged, env, kind="", entry=entry)
    registry, package, rest, entry_point = _package(program, words)
    if registry == "oci":
        env += [EnvVar(name=n, required=True, secret=bool(_SECRET.search(n))) for n in _docker_env(words)]
        env = list({v.name: v for v in reversed(env)}.values())[::-1]
        needs_key = needs_key or any(v.secret for v in env)
    package, version = _versioned(registry, package)
    kept = recordable(rest if package else ())  # without a package they are somebody's own files
    install = Install(
        registry=registry,
        package=package or None,
        version=version,
        command=entry_point or None,
        args=list(kept.shown),
        env=env,
    )
    return Configured(name, install, Transport.STDIO, kept.run, version, needs_key or kept.secret)


def read_command(line: str) -> Configured | None:
    """A shell command that starts a server: ``npx -y pkg``, ``claude mcp add name -- uvx pkg``."""
    words = _split(line)
    if "--" in words and any(w in ("add", "add-mcp") for w in words[: words.index("--")]):
        words = words[words.index("--") + 1 :]
    while words and re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", words[0]):
        words = words[1:]
    if not words or _program(words[0]) not in ("npx", "bunx", "pnpm", "uvx", "uv", "pipx", "docker"):
        return None
    configured = read_entry("", {"command": words[0], "args": words[1:]})
    return configured if configured is not None and configured.install.package else None


def _objects(text: str) -> Iterable[tuple[str, Any]]:
    """Outermost brace-balanced pieces of a text with their values; None where one is no JSON."""
    at, budget = 0, _BUDGET
    while budget > 0 and (start := text.find("{", at)) >= 0:
        end = _closing(text, start)
        budget -= (end if end >= 0 else len(text)) - start
        if end < 0:
            # Cut off, or braces in prose: try from the next one.
            if any(f'"{key}"' in text[start : start + 200] for key in CONTAINERS):
                yield text[start : start + 400], None
            at = start + 1
            continue
        piece = text[start : end + 1]
        value = _lenient(piece)
        yield piece, value
        at = end + 1 if value is not None or '"' in piece else start + 1


def _closing(text: str, start: int) -> int:
    depth, quoted, escaped = 0, False, False
    for at in range(start, min(len(text), start + 200_000)):
        c = text[at]
        if quoted:
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return at
    return -1


def _lenient(piece: str) -> Any:
    for text in (piece, _tidied(piece)):
        try:
            return json.loads(text, strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def _tidied(piece: str) -> str:
    """JSON without comments (not those within strings: ``https://``) and trailing commas."""
    without = re.sub(
        r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|(?m:^\s*#[^\n]*)', lambda m: m[1] or "", piece, flags=re.S
    )
    return re.sub(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', lambda m: m[1] or m[2], without)


def _entries(value: Any) -> Iterable[tuple[str, JsonObject]]:
    """Name and entry of every server in a parsed object: under a client's key, as a map of entries, or one entry."""
    if not isinstance(value, dict):
        return
    for key in CONTAINERS:
        inner = value.get(key)
        if isinstance(inner, dict):
            yield from ((str(n), e) for n, e in inner.items() if isinstance(e, dict))
            return
    inner = value.get("mcp")
    if isinstance(inner, dict):
        yield from _entries(inner if any(k in inner for k in CONTAINERS) else {"mcpServers": inner})
        return
    if isinstance(value.get("command"), str) and (isinstance(value.get("args"), list) or " " in value["command"]):
        yield str(value.get("name") or ""), value
        return
    entries = {n: e for n, e in value.items() if isinstance(e, dict) and ("command" in e or "url" in e)}
    if entries and len(entries) == len(value):
        yield from entries.items()


def _remote(name: str, url: str, env: list[EnvVar], kind: str, entry: JsonObject) -> Configured | None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or _PLACEHOLDER.search(parts.hostname):
        return None
    sse = "sse" in kind.lower() or (not kind and parts.path.rstrip("/").endswith("/sse"))
    wanted = [h for h in map(str, _object(entry.get("headers"))) if re.fullmatch(r"[A-Za-z][\w-]{0,60}", h)]
    env = [*env, *(EnvVar(name=h, required=True, secret=bool(_SECRET.search(h))) for h in wanted)]
    clean, secret = recordable_url(url)
    keyed = secret or any(v.secret for v in env)
    transport = Transport.SSE if sse else Transport.HTTP
    return Configured(name, Install(registry="url", url=clean, env=env), transport, needs_key=keyed)


def _package(program: str, words: list[str]) -> tuple[str, str, list[str], str]:
    """Registry, package specification, the arguments after it, and the command within it where one is named."""
    if program in ("npx", "bunx"):
        return _after_flags(words, "npm", _NPX_VALUE_FLAGS, ("-p", "--package"))
    if program in ("npm", "pnpm", "yarn", "bun") and words[:1] and words[0] in ("exec", "x", "dlx"):
        return _after_flags(words[1:], "npm", _NPX_VALUE_FLAGS, ("-p", "--package"))
    if program == "uvx":
        return _after_flags(words, "pypi", _UVX_VALUE_FLAGS, ("--from",))
    if program == "uv" and words[:2] == ["tool", "run"]:
        return _after_flags(words[2:], "pypi", _UVX_VALUE_FLAGS, ("--from",))
    if program == "uv" and words[:1] == ["run"] and "--with" in words and "--directory" not in words:
        return _after_flags(words[1:], "pypi", _UVX_VALUE_FLAGS, ("--with",))
    if program == "pipx" and words[:1] == ["run"]:
        return _after_flags(words[1:], "pypi", _UVX_VALUE_FLAGS, ("--spec",))
    if program in ("docker", "podman") and "run" in words:
        rest = words[words.index("run") + 1 :]
        while rest and rest[0].startswith("-"):
            takes_value = rest[0] not in _DOCKER_FLAGS and "=" not in rest[0]
            rest = rest[2 if takes_value else 1 :]
        return ("oci", rest[0], rest[1:], "") if rest else ("none", "", [], "")
    return "none", "", words, ""


def _after_flags(
    words: list[str], registry: str, valued: frozenset[str], naming: tuple[str, ...]
) -> tuple[str, str, list[str], str]:
    """The first word that is no flag; a flag that names the package wins, and the word is then its command."""
    named, at = "", 0
    while at < len(words) and words[at].startswith("-"):
        flag, _, value = words[at].partition("=")
        if flag in valued and not value:
            value = words[at + 1] if at + 1 < len(words) else ""
            at += 1
        if flag in naming and not named:
            named = value
        at += 1
    package = named or (words[at] if at < len(words) else "")
    pattern = _NPM_NAME if registry == "npm" else _PYPI_NAME
    bare = _versioned(registry, package)[0]
    if not pattern.fullmatch(bare) or _PLACEHOLDER.search(bare) or bare.startswith("."):
        return "none", "", words[at + 1 :], ""
    entry_point = words[at] if named and at < len(words) and not token_like(words[at]) else ""
    return registry, package, words[at + 1 :], entry_point


def _versioned(registry: str, package: str) -> tuple[str, str | None]:
    """``name@1.2`` apart; a tag such as ``latest`` is no version."""
    if registry == "npm":
        at = package.find("@", 1)
        name, version = (package[:at], package[at + 1 :]) if at > 0 else (package, "")
    elif registry == "pypi":
        name, version = (re.split(r"[=<>~!@\[]", package, maxsplit=1)[0], "")
        pinned = re.search(r"(?:==|@)\s*(\d[\w.!+-]*)$", package)
        version = pinned[1] if pinned else ""
    elif registry == "oci":
        head, _, tag = package.partition("@")[0].rpartition(":")
        name, version = (head, tag) if head and "/" not in tag else (package, "")
    else:
        name, version = package, ""
    return name, version if re.fullmatch(r"v?\d[\w.!+-]{0,40}", version) else None


def _program(command: str) -> str:
    name = re.split(r"[\\/]", command.strip())[-1].lower()
    return re.sub(r"\.(?:exe|cmd|bat|ps1)$", "", name)


def _unwrap(program: str, words: list[str]) -> tuple[str, list[str]]:
    """The command within ``cmd /c ...``, ``bash -c "..."``, ``env A=b ...``."""
    if program == "cmd" and len(words) > 1 and words[0].lower() == "/c":
        return _unwrap(_program(words[1]), words[2:])
    if program in ("bash", "sh", "zsh") and len(words) == 2 and words[0] in ("-c", "-lc"):
        inner = _split(words[1])
        if inner and not re.search(r"[;&|]", words[1]):
            return _unwrap(_program(inner[0]), inner[1:])
    if program == "env":
        rest = [w for w in words if "=" not in w]
        if rest:
            return _unwrap(_program(rest[0]), rest[1:])
    return program, words


def _bridged(words: list[str]) -> str:
    """The address behind a bridge from stdio to a remote server; '' if there is none."""
    bridge = next((w.split("@", 1)[0] if not w.startswith("@") else w for w in words if not w.startswith("-")), "")
    if bridge in ("mcp-remote", "supergateway"):
        return next((w for w in words if w.startswith(("http://", "https://"))), "")
    return ""


def _docker_env(words: list[str]) -> list[str]:
    names = []
    for flag, value in itertools.pairwise(words):
        if flag in ("-e", "--env"):
            name = value.split("=", 1)[0]
            if _is_variable(name):
                names.append(name)
    return names


def _variable(name: str, value: Any) -> EnvVar:
    placeholder = not isinstance(value, str) or bool(_PLACEHOLDER.search(value))
    secret = bool(_SECRET.search(name))
    return EnvVar(name=name, required=placeholder or secret, secret=secret)


def _is_variable(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name))


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
