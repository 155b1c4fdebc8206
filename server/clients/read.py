"""Read the MCP servers out of clients' configuration files, whatever their dialect, into the ``mcpServers`` form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any

from toolscout.errors import BadInput, NotFound
from toolscout.jsonl import well_formed
from toolscout.server.clients.commands import as_command, is_relative, text
from toolscout.server.clients.documents import load_document
from toolscout.server.clients.known import CLIENTS, Client, Machine, Place
from toolscout.server.clients.variables import Variables

_KEYS: tuple[tuple[str, ...], ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp_servers",),
    ("mcp", "servers"),
    ("context_servers",),
    ("mcp",),
    ("extensions",),  # Goose
    ("amp.mcpServers",),
    ("settings", "mcp", "servers"),  # a workspace file of VS Code
    ("customizations", "vscode", "mcp", "servers"),  # a development container
)
IS_TOOLSCOUT = "is Toolscout itself"
IS_DISABLED = "is disabled there"
_OF_PROGRAM = {"builtin", "platform", "frontend", "inline_python", "extension"}
_URL_FIELDS = ("url", "serverUrl", "httpUrl", "uri")
_OTHER_NAMES = {"cmd": "command", "envs": "env", "environment": "env", "env_keys": "env_vars"}
_CLIENT_ID = re.compile(r"client_?id", re.IGNORECASE)
_FILTERS = (
    "enabled_tools", "disabled_tools", "enabledTools", "disabledTools", "includeTools", "excludeTools", "tools",
    "available_tools",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One server as a client's file describes it. ``config`` may still hold secrets: it is never shown as it is."""

    name: str
    config: dict[str, Any] = field(repr=False)
    """``{command, args, env, cwd}`` or ``{url, transport, headers}``."""

    source: str
    """Client id, or ``file``."""

    path: Path
    scope: str = "user"
    """``user``, ``project``, or the folder of a per-project entry."""

    problem: str | None = None
    """Why it is not taken over, if so."""

    notes: tuple[str, ...] = ()
    wants: Mapping[str, str] = field(default_factory=dict)
    """Variables that the client would ask the person for (VS Code's inputs), with what they are."""

    files: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    """Path and content of the files that it reads (``{file:...}``), by the references that stand for them."""


@dataclass
class Reading:
    """What was found: entries, the files they came from, and files that could not be read (path, reason)."""

    entries: list[Entry] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    failures: list[tuple[Path, str]] = field(default_factory=list)

    def add(self, other: Reading) -> None:
        """Append another reading's findings."""
        self.entries += other.entries
        self.files += other.files
        self.failures += other.failures


def read_client(client: Client, machine: Machine) -> Reading:
    """Everything that a client has configured. Missing files are normal; unreadable ones are in ``failures``."""
    reading = Reading()
    for place in client.places(machine):
        if not place.path.is_file():
            continue
        try:
            document = load_document(place.path)
            entries = list(_client_entries(document, client, place, machine))
        except BadInput as error:
            reading.failures.append((place.path, str(error)))
            continue
        reading.files.append(place.path)
        reading.entries += entries
    return reading


def read_file(path: Path, machine: Machine) -> Reading:
    """The servers of any configuration file (JSON, JSON with comments, TOML, YAML), whichever client's form it has.

    Raises NotFound if there is no such file, BadInput if it cannot be parsed or holds no servers.
    """
    if not path.is_file():
        raise NotFound(f"There is no file {path}.", "Name a file, or one of the known clients.")
    document = load_document(path)
    servers = _servers_anywhere(document)
    if servers is None:
        known = ", ".join(".".join(keys) for keys in _KEYS)
        raise BadInput(f"{path} holds no MCP servers.", f"They are looked for under: {known}.")
    machine = Machine(machine.home, machine.platform, machine.env, path.resolve().parent)
    entries = list(_entries(servers, document, "file", Place(path), machine))
    entries += _per_project(document, "file", path, machine)
    return Reading(entries, [path])


def read_place(document: dict[str, Any], client: Client, place: Place, machine: Machine) -> list[Entry]:
    """The servers of one parsed file of a client, those of single projects included. Raises BadInput."""
    return list(_client_entries(document, client, place, machine))


def _client_entries(document: dict[str, Any], client: Client, place: Place, machine: Machine) -> Iterator[Entry]:
    place = place.within(document)
    servers: Any = document
    for key in place.key:
        servers = servers.get(key) if isinstance(servers, dict) else None
    if servers is not None and not isinstance(servers, dict):
        raise BadInput(f"{place.path}: {'.'.join(place.key)} is not an object.")
    yield from _entries(servers or {}, document, client.id, place, machine)
    if client.id == "claude-code" and place.scope == "user":
        yield from _per_project(document, client.id, place.path, machine)


def _per_project(document: dict[str, Any], source: str, path: Path, machine: Machine) -> Iterator[Entry]:
    projects = document.get("projects")
    for folder, project in projects.items() if isinstance(projects, dict) else ():
        servers = project.get("mcpServers") if isinstance(project, dict) else None
        if isinstance(servers, dict):
            here = Machine(machine.home, machine.platform, machine.env, Path(folder))
            yield from _entries(servers, document, source, Place(path, scope=str(folder)), here)


def _servers_anywhere(document: dict[str, Any]) -> dict[str, Any] | None:
    for keys in _KEYS:
        found: Any = document
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, list) and found and all(isinstance(one, dict) for one in found):  # Continue
            found = {str(one.get("name") or number): one for number, one in enumerate(found, 1)}
        if isinstance(found, dict) and (keys == ("mcpServers",) or any(map(_is_server, found.values()))):
            return found
    if isinstance(document.get("projects"), dict):
        return {}
    return document if document and all(map(_is_server, document.values())) else None


def _is_server(entry: Any) -> bool:
    return isinstance(entry, dict) and any(field in entry for field in ("command", "cmd", *_URL_FIELDS))


def _entries(
    servers: dict[str, Any], document: dict[str, Any], source: str, place: Place, machine: Machine
) -> Iterator[Entry]:
    holders = (document, *(document.get(key) for key in ("mcp", "settings")))
    asked: list[Any] = next(
        (h["inputs"] for h in holders if isinstance(h, dict) and isinstance(h.get("inputs"), list)), []
    )
    inputs = {str(i["id"]): i for i in asked if isinstance(i, dict) and "id" in i}
    for key, raw in servers.items():
        name = well_formed(str(key))  # as it can be written
        if not isinstance(raw, dict):
            yield Entry(name, {}, source, place.path, place.scope, problem="not an object")
            continue
        yield _entry(name, raw, inputs, source, place, machine)


def _entry(
    name: str, raw: dict[str, Any], inputs: dict[str, Any], source: str, place: Place, machine: Machine
) -> Entry:
    variables = Variables(machine, inputs, place.path.parent)
    notes = variables.notes
    problem: str | None = None
    config: dict[str, Any] = {}
    entry = usual(variables.translate(raw))
    url = next((entry[f] for f in _URL_FIELDS if isinstance(entry.get(f), str) and entry[f].strip()), None)
    try:
        if entry.get("command"):
            config = _stdio(entry, place, machine, variables)
        elif url:
            config = _remote(entry, url, source, notes)
        elif "settings" in entry or entry.get("type") in _OF_PROGRAM:
            problem = "is a part or an extension of the program itself"
        else:
            problem = "has neither a command nor a url"
    except ValueError as error:
        problem, config = str(error), {**entry, "url": url}  # a preview hides its secrets, too
    except (TypeError, AttributeError):
        problem = "a field of it is not of the kind that it should be"
    if problem is None and is_toolscout(name, config):
        problem = IS_TOOLSCOUT
    elif problem is None and (raw.get("disabled") is True or raw.get("enabled") is False):
        problem = IS_DISABLED
    if any(raw.get(f) for f in _FILTERS):
        notes.append("its tool filter is not taken over")
    said = tuple(dict.fromkeys(notes))
    return Entry(name, config, source, place.path, place.scope, problem, said, variables.wants, variables.files)


def usual(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with its fields named as in most clients."""
    entry = {_OTHER_NAMES.get(key, key): value for key, value in entry.items()}
    if isinstance(started := entry.get("command"), dict):  # Zed, until 2025
        entry = {**entry, **started, "command": started.get("path")}
    return entry


def _stdio(entry: dict[str, Any], place: Place, machine: Machine, variables: Variables) -> dict[str, Any]:
    config = as_command(entry, machine, variables.notes)
    env: dict[str, Any] = config.pop("env", {})
    if isinstance(entry.get("envFile"), str):
        env.update(_env_file(Path(entry["envFile"]), variables))
    for name in entry.get("env_vars") or ():  # Codex: variables handed on from its own environment
        name = name.get("name") if isinstance(name, dict) else name
        env[str(name)] = f"${{{name}}}"
    given = entry.get("env")
    if isinstance(given, dict):
        env.update({k: text(v) for k, v in given.items() if v is not None})
    elif isinstance(given, list):  # ["NAME=value"]
        env.update({name: value for name, sep, value in (str(pair).partition("=") for pair in given) if sep})
    if env:
        config["env"] = env
    cwd = entry.get("cwd")
    if isinstance(cwd, str) and cwd:
        config["cwd"] = cwd
    elif machine.project and place.scope != "user" and is_relative(config["command"], config["args"], machine.project):
        config["cwd"] = str(machine.project)
    return config


def _remote(entry: dict[str, Any], url: str, source: str, notes: list[str]) -> dict[str, Any]:
    url = url.strip()
    said = entry.get("type") or entry.get("transport") or entry.get("transportType") or ""
    kind = str(said).lower().replace("_", "-").replace("remote", "")
    if not kind and source in CLIENTS:
        kind = CLIENTS[source].untyped
    if not re.match(r"https?://|\$\{", url):
        raise ValueError(f"its url is not http or https, and transport {kind or 'unknown'} is not supported")
    config: dict[str, Any] = {"url": url}
    if kind or "httpUrl" in entry:  # else it is found out at the first start (`UpstreamConfig.guessed`)
        config["transport"] = "sse" if kind == "sse" else "http"
    headers: dict[str, str] = {}
    for given in (entry.get("headers"), entry.get("http_headers"), entry.get("requestInit")):
        if isinstance(given, dict):
            given = given.get("headers", given) if "headers" in given else given
            headers.update({str(k): text(v) for k, v in given.items()})
    for name, variable in (entry.get("env_http_headers") or {}).items():
        headers[str(name)] = f"${{{variable}}}"
    if isinstance(entry.get("bearer_token_env_var"), str):
        headers["Authorization"] = f"Bearer ${{{entry['bearer_token_env_var']}}}"
    if isinstance(entry.get("bearer_token"), str):
        headers["Authorization"] = f"Bearer {entry['bearer_token']}"
    if headers:
        config["headers"] = headers
    login = entry.get("oauth") or entry.get("auth")  # Codex' table, Cursor's block
    if (login == "oauth" or isinstance(login, dict)) and not any(n.lower() == "authorization" for n in headers):
        config["auth"] = "oauth"
        notes.append("you log in to it with: toolscout login")
        if isinstance(login, dict) and any(_CLIENT_ID.fullmatch(str(key)) for key in login):
            notes.append("its own client id is not taken over: Toolscout registers itself")
    elif login and login != "oauth":
        notes.append("its sign-in settings are not taken over")
    if entry.get("headersHelper"):
        notes.append("its headersHelper is not taken over")
    return config


def _env_file(path: Path, variables: Variables) -> dict[str, str]:
    """References for what a file of variables holds: it is kept apart from the entry there, whatever it is."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        variables.notes.append(f"its envFile {path.name} could not be read")
        return {}
    found = {}
    for line in lines:
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$", line)
        if match:
            found[match.group(1)] = variables.held(f"env file {match.group(1)}", path, match.group(2).strip("\"'"))
    return found


def is_toolscout(name: str, config: Mapping[str, Any]) -> bool:
    """Whether an entry starts Toolscout itself: importing that would make it its own upstream."""
    if "command" not in config:
        return name.lower() == "toolscout"
    command = config["command"] if isinstance(config["command"], list) else [config["command"]]
    words = [*map(str, command), *map(str, config.get("args") or ())] or [""]
    program = re.sub(r"(?i)\.(exe|cmd)$", "", PureWindowsPath(words[0]).name.lower())
    if program == "toolscout":
        return True
    asked = any(re.fullmatch(r"toolscout(\[[^\]]*\])?([=@<>~!].*)?", w.lower()) for w in words[1:])
    named = any(PureWindowsPath(w).name.lower() in {"toolscout", "toolscout.exe"} for w in words[1:])
    return asked or (named and (words[-1] == "serve" or "serve" in words))
