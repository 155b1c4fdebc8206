"""The configured upstreams: one ``mcp.json`` in the usual ``mcpServers`` form, read and written with care."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, NotFound, StorageError
from toolscout.files import locked, write_json
from toolscout.records import JsonObject, Transport
from toolscout.server.sandbox.policy import Default, Policy
from toolscout.server.secrecy.secrets import Resolver, bare_names, references
from toolscout.server.shell_lines import own_names

_HTTP_NAMES = {"http", "streamable-http", "streamable_http", "streamablehttp"}
_URL_FIELDS = ("url", "serverUrl", "httpUrl")
_OWN_PREFIX = "TOOLSCOUT_"


@dataclass(frozen=True)
class UpstreamConfig:
    """How to reach one upstream. Values may hold references to secrets (see ``server.secrecy.secrets``).

    ``fields`` is the entry as it stands in the file, unknown fields included.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    guessed: bool = False
    """Whether the entry leaves it open by which transport the URL is served."""
    auth: str | None = None
    timeout: float | None = None
    """Call timeout in seconds; the file holds milliseconds, as FastMCP's ``timeout`` does."""
    start_timeout: float | None = None
    """How long it may take to start, in seconds; the file's ``startTimeout`` holds milliseconds, too."""
    disabled: bool = False
    keep_alive: float | None = None
    """Seconds that its process may idle before it is stopped, infinity for never; None: the entry does not say."""
    shared: bool = False
    """Whether all clients of the HTTP face share it: it holds nothing that is one client's."""
    sandbox: Policy | bool | None = None
    """What its sandbox opens; False: it wants none; None: the entry does not say."""
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, name: str, entry: object) -> UpstreamConfig:
        """Read one entry of ``mcpServers``. Raises BadInput that says what is wrong with it."""
        if not name.strip() or any(ord(c) < 32 for c in name):
            raise BadInput("A server needs a name without control characters.")
        if not isinstance(entry, Mapping):
            raise BadInput(f"Server '{name}': the entry must be an object with 'command' or 'url'.")
        url = next((entry[f] for f in _URL_FIELDS if entry.get(f)), "")
        command = entry.get("command") or ""
        if not isinstance(url, str) or not isinstance(command, str):
            raise BadInput(f"Server '{name}': 'command' and 'url' must be text.")
        kind = str(entry.get("transport") or entry.get("type") or "").lower()
        config = cls(
            name=name,
            transport=Transport.STDIO,
            timeout=_milliseconds(name, "timeout", entry.get("timeout")),
            start_timeout=_milliseconds(name, "startTimeout", entry.get("startTimeout")),
            disabled=bool(entry.get("disabled", False)),
            keep_alive=_idling(name, entry.get("keep_alive")),
            shared=entry.get("shared") is True,
            sandbox=None if entry.get("sandbox") is None else Policy.parse(name, entry["sandbox"]) or False,
            fields=dict(entry),
        )
        if url and not command:
            if config.sandbox:
                raise BadInput(
                    f"Server '{name}': 'sandbox' is for servers that run here; this one is called at its address.",
                    "Take it out of the entry.",
                )
            return replace(
                config,
                transport=_remote_kind(name, kind, url, "httpUrl" in entry),
                guessed=not kind and "httpUrl" not in entry,
                url=url,
                headers=_texts(name, "headers", entry.get("headers")),
                auth=_optional_text(name, "auth", entry.get("auth")),
            )._checked()
        if not command:
            raise BadInput(f"Server '{name}': it has neither 'command' nor 'url'.")
        args = entry.get("args") or []
        if not isinstance(args, list) or any(isinstance(a, (dict, list)) or a is None for a in args):
            raise BadInput(f"Server '{name}': 'args' must be a list of text.")
        return replace(
            config,
            command=command,
            args=tuple(_text(a) for a in args),
            env=_texts(name, "env", entry.get("env")),
            cwd=_optional_text(name, "cwd", entry.get("cwd")),
        )._checked()

    def _checked(self) -> UpstreamConfig:
        """Itself. Raises BadInput where it refers to what is Toolscout's own: no server gets to know that."""
        names = bare_names(self.references(defaulted=True))
        if own := [name for name in names if name.upper().startswith(_OWN_PREFIX)]:
            raise BadInput(
                f"Server '{self.name}': {', '.join(own)} is Toolscout's own, which no server is handed.",
                "Keep what it needs under another name.",
            )
        return self

    @classmethod
    def stdio(
        cls,
        name: str,
        command: str,
        args: tuple[str, ...] | list[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> UpstreamConfig:
        """A stdio upstream built in code."""
        entry: JsonObject = {"command": command, "args": list(args)}
        if env:
            entry["env"] = dict(env)
        if cwd:
            entry["cwd"] = cwd
        return cls.parse(name, entry)

    @classmethod
    def remote(
        cls,
        name: str,
        url: str,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        auth: str | None = None,
    ) -> UpstreamConfig:
        """An HTTP or SSE upstream built in code; ``auth`` is ``"oauth"`` or a bearer token reference."""
        entry: JsonObject = {"url": url}
        if transport is not None:
            entry["transport"] = transport.value
        if headers:
            entry["headers"] = dict(headers)
        if auth:
            entry["auth"] = auth
        return cls.parse(name, entry)

    def policy(self, default: Default) -> Policy | None:
        """What its sandbox opens, or None for no sandbox; ``default`` counts where the entry says nothing."""
        if self.transport is not Transport.STDIO or self.sandbox is False:
            return None
        return self.sandbox if isinstance(self.sandbox, Policy) else Policy.default(default)

    def confined(self, default: Default) -> UpstreamConfig:
        """The same with the ``default`` sandbox written down, so that it holds whoever starts the server."""
        if self.transport is not Transport.STDIO or self.sandbox is not None or default == "off":
            return self
        said = {"network": True} if default == "network" else True
        return UpstreamConfig.parse(self.name, {**self.fields, "sandbox": said})

    def references(self, *, defaulted: bool = False) -> list[str]:
        """Names of the secrets and variables that this entry refers to; those with a default only if ``defaulted``."""
        left = own_names(self.command, self.args, self.env)
        values = [self.cwd or "", self.url, self.auth or "", *self.env.values(), *self.headers.values()]
        started = (n for n in references([self.command, *self.args], defaulted=defaulted) if n not in left)
        return list(dict.fromkeys([*started, *references(values, defaulted=defaulted)]))

    def handed(self, values: Container[str], own: Container[str] = ()) -> list[str]:
        """Names among ``values`` that it refers to and that are not its ``own``: it gets to know what they hold."""
        from toolscout.server.clients.redact import AMBIENT

        names = bare_names(self.references(defaulted=True))
        return [name for name in names if name in values and name not in own and name not in AMBIENT]

    def missing(self, values: Container[str]) -> list[str]:
        """Those of its `references` that are not among ``values``; what only the keyring knows is not looked for."""
        return [name for name in self.references() if not name.startswith("keyring:") and name not in values]

    def resolved(self, resolver: Resolver) -> UpstreamConfig:
        """A copy with all references replaced. Raises MissingSecret naming every variable without a value."""
        copy = replace(
            self,
            command=resolver.resolve(self.command),
            args=resolver.resolve_args(self.args, own_names(self.command, self.args, self.env)),
            env=resolver.resolve_all(self.env),
            cwd=resolver.resolve(self.cwd) if self.cwd else None,
            url=resolver.resolve(self.url),
            headers=resolver.resolve_all(self.headers),
            auth=resolver.resolve(self.auth, field="auth") if self.auth and self.auth != "oauth" else self.auth,
            fields={},
        )
        resolver.check(self.name)
        return copy


class ServersFile:
    """``mcp.json``. Reading skips broken entries (``problems`` names them); writing keeps everything it finds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: dict[str, str] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._cached: dict[str, UpstreamConfig] = {}

    def load(self) -> dict[str, UpstreamConfig]:
        """All usable entries by name; empty when there is no file. Raises BadInput if it can't be parsed.

        Cheap when the file has not changed since the last call.
        """
        stamp = self._file_stamp()
        if stamp is None:
            self._stamp, self._cached, self.problems = None, {}, {}
        elif stamp != self._stamp:
            found: dict[str, UpstreamConfig] = {}
            problems: dict[str, str] = {}
            for name, entry in self._entries(self._document()).items():
                try:
                    found[name] = UpstreamConfig.parse(name, entry)
                except BadInput as error:
                    problems[name] = str(error)
            self._stamp, self._cached, self.problems = stamp, found, problems
        return dict(self._cached)

    def add(self, config: UpstreamConfig, *, overwrite: bool = True) -> bool:
        """Write one entry; unknown fields of an entry that is replaced are kept. True if it was new."""
        with self._editing() as servers:
            old = servers.get(config.name)
            if old is not None and not overwrite:
                raise BadInput(f"A server named '{config.name}' is configured already.", hint="Choose another name.")
            servers[config.name] = in_place_of(old, config)
            return old is None

    def entry(self, name: str) -> JsonObject:
        """One entry as it stands in the file, also one that is not usable. Raises NotFound if there is none."""
        found = self._entries(self._document()).get(name) if self.path.exists() else None
        if not isinstance(found, dict):
            raise _not_configured(name)
        return found

    def change(self, before: Mapping[str, Any], config: UpstreamConfig) -> None:
        """Write an entry that was made of the one ``before``. Raises StorageError where it is not that any more."""
        with self._editing() as servers:
            if servers.get(config.name) != before:
                raise StorageError(f"The entry of '{config.name}' was changed meanwhile.", hint="Try again.")
            servers[config.name] = dict(config.fields)

    def remove(self, name: str) -> None:
        """Delete one entry. Raises NotFound if there is none of that name."""
        with self._editing() as servers:
            if name not in servers:
                raise _not_configured(name)
            del servers[name]

    def save(self, configs: Mapping[str, UpstreamConfig]) -> None:
        """Make the file's servers exactly these; everything else in the file stays."""
        with self._editing() as servers:
            kept = {name: servers.get(name) for name in configs}
            servers.clear()
            for name, config in configs.items():
                servers[name] = in_place_of(kept[name], config)

    @contextmanager
    def _editing(self) -> Iterator[JsonObject]:
        """Read, change and write under a lock: two processes never lose each other's change."""
        with locked(self.path):
            document = self._document() if self.path.exists() else {}
            servers = document.setdefault("mcpServers", {})
            if not isinstance(servers, dict):
                raise BadInput(f"{self.path}: 'mcpServers' is not an object.", hint="Repair the file first.")
            yield servers
            write_json(self.path, document, mode=0o600)
        self._stamp = None

    def _document(self) -> JsonObject:
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{self.path} can't be read: {error}.", hint="Repair the file; it was not changed."
            ) from None
        if not text.strip():
            return {}
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{self.path} is not valid JSON: {error}.", hint="Repair the file; it was not changed."
            ) from None
        if not isinstance(document, dict):
            raise BadInput(f"{self.path} must hold a JSON object.", hint="Repair the file; it was not changed.")
        return document

    def _entries(self, document: JsonObject) -> JsonObject:
        servers = document.get("mcpServers", {})
        if not isinstance(servers, dict):
            raise BadInput(f"{self.path}: 'mcpServers' is not an object.", hint="Repair the file; it was not changed.")
        return servers

    def _file_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"{self.path} can't be read: {error}.") from None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def in_place_of(old: object, config: UpstreamConfig) -> JsonObject:
    """The entry that replaces ``old``, in its order: fields that Toolscout does not know stay."""
    known = old if isinstance(old, dict) else {}
    kept = {k: v for k, v in known.items() if k in config.fields or k not in _OWN_FIELDS}
    return {**kept, **config.fields}


_OWN_FIELDS = {
    "command",
    "args",
    "env",
    "cwd",
    "headers",
    "auth",
    "transport",
    "type",
    "timeout",
    "startTimeout",
    "disabled",
    "shared",
    "keep_alive",
    "sandbox",
    "starter",
    *_URL_FIELDS,
}


def _remote_kind(name: str, kind: str, url: str, is_http_url: bool) -> Transport:
    if not re.match(r"https?://|\$\{", url):
        raise BadInput(f"Server '{name}': the URL must start with http:// or https://.")
    if kind == "sse":
        return Transport.SSE
    if kind in _HTTP_NAMES or is_http_url:
        return Transport.HTTP
    if kind:
        raise BadInput(f"Server '{name}': unknown transport '{kind}'.", hint="Use stdio, http or sse.")
    # FastMCP's rule: a path that ends in /sse is the older transport.
    return Transport.SSE if re.search(r"/sse(/|\?|&|$)", url) else Transport.HTTP


def _not_configured(name: str) -> NotFound:
    return NotFound(f"No server named '{name}' is configured.", hint="See: toolscout list")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _texts(name: str, field_name: str, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or any(isinstance(v, (dict, list)) for v in value.values()):
        raise BadInput(f"Server '{name}': '{field_name}' must be an object of text values.")
    return {str(k): _text(v) for k, v in value.items() if v is not None}


def _optional_text(name: str, field_name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise BadInput(f"Server '{name}': '{field_name}' must be text.")


def _milliseconds(name: str, field_name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e10:
        raise BadInput(f"Server '{name}': '{field_name}' must be a positive number of milliseconds.")
    return value / 1000


def _idling(name: str, value: object) -> float | None:
    if value is None or value is True:
        return None if value is None else math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e10:
        raise BadInput(f"Server '{name}': 'keep_alive' must be a positive number of seconds, or true for always.")
    return float(value)
