"""Read the MCP servers out of clients' configuration files, whatever their dialect, into the ``mcpServers`` form."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from toolscout.errors import BadInput, NotFound
from toolscout.jsonl import well_formed
from toolscout.server.clients import jsonc
from toolscout.server.clients.known import Client, Machine, Place
from toolscout.server.clients.redact import variable_name

_KEYS: tuple[tuple[str, ...], ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp_servers",),
    ("mcp", "servers"),
    ("context_servers",),
    ("mcp",),
)
IS_TOOLSCOUT = "is Toolscout itself"
IS_DISABLED = "is disabled there"
_URL_FIELDS = ("url", "serverUrl", "httpUrl", "uri")
_LAUNCHERS = {"npx", "npm", "node", "bunx", "bun", "uvx", "uv", "python", "python3", "py", "docker", "deno", "pnpm"}
_SHELL_SWITCHES = {"/c", "/d", "/s", "/q", "/v:on"}
_FILTERS = ("enabled_tools", "disabled_tools", "enabledTools", "disabledTools", "includeTools", "excludeTools", "tools")
_VARIABLE = re.compile(r"\$\{(env:|input:)?([^}:]*)(:-[^}]*)?\}")


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
    """The servers of any configuration file (JSON, JSON with comments, TOML), whichever client's form it has.

    Raises NotFound if there is no such file, BadInput if it cannot be parsed or holds no servers.
    """
    if not path.is_file():
        raise NotFound(f"There is no file {path}.", "Name a file, or one of the known clients.")
    document = load_document(path)
    servers = _servers_anywhere(document)
    if servers is None:
        raise BadInput(f"{path} holds no MCP servers.", 'Expected an object such as {"mcpServers": {...}}.')
    machine = Machine(machine.home, machine.platform, machine.env, path.resolve().parent)
    entries = list(_entries(servers, document, "file", Place(path), machine))
    entries += _per_project(document, "file", path, machine)
    return Reading(entries, [path])


def read_place(document: dict[str, Any], client: Client, place: Place, machine: Machine) -> list[Entry]:
    """The servers of one parsed file of a client, without those of single projects. Raises BadInput."""
    return [entry for entry in _client_entries(document, client, place, machine) if entry.scope == place.scope]


def load_document(path: Path) -> dict[str, Any]:
    """A parsed configuration file; TOML by suffix, else JSON with or without comments. An empty file is empty.

    Raises BadInput naming the file.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from None
    return parse_document(text, path)


def parse_document(text: str, path: Path) -> dict[str, Any]:
    """Like ``load_document``, of text already read."""
    if not text.strip():
        return {}
    try:
        document = tomllib.loads(text) if path.suffix == ".toml" else jsonc.loads(text)
    except BadInput as error:
        raise BadInput(f"{path} cannot be parsed. {error}") from None
    except (ValueError, RecursionError) as error:  # also an endless number, or nesting that is too deep
        raise BadInput(f"{path} is not valid TOML: {error}.") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path} does not hold an object at its top level.")
    return document


def _client_entries(document: dict[str, Any], client: Client, place: Place, machine: Machine) -> Iterator[Entry]:
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
        if isinstance(found, dict) and (keys == ("mcpServers",) or _all_servers(found)):
            return found
    if isinstance(document.get("projects"), dict):
        return {}
    return document if document and _all_servers(document) else None


def _all_servers(found: dict[str, Any]) -> bool:
    return all(isinstance(v, dict) and ("command" in v or any(f in v for f in _URL_FIELDS)) for v in found.values())


def _entries(
    servers: dict[str, Any], document: dict[str, Any], source: str, place: Place, machine: Machine
) -> Iterator[Entry]:
    inputs = document.get("inputs")
    if place.key[0] == "mcp" and isinstance(document.get("mcp"), dict):
        inputs = document["mcp"].get("inputs")
    described = {
        str(i["id"]): str(i.get("description") or i["id"])
        for i in (inputs if isinstance(inputs, list) else ())
        if isinstance(i, dict) and "id" in i
    }
    for key, raw in servers.items():
        name = well_formed(str(key))  # as it can be written
        if not isinstance(raw, dict):
            yield Entry(name, {}, source, place.path, place.scope, problem="not an object")
            continue
        yield _entry(name, raw, described, source, place, machine)


def _entry(
    name: str, raw: dict[str, Any], inputs: dict[str, str], source: str, place: Place, machine: Machine
) -> Entry:
    notes: list[str] = []
    wants: dict[str, str] = {}

    def translate(value: Any) -> Any:
        if isinstance(value, str):
            return _translate(value, machine, inputs, wants)
        if isinstance(value, list):
            return [translate(item) for item in value]
        if isinstance(value, dict):
            return {str(key): translate(item) for key, item in value.items()}
        return value

    entry: dict[str, Any] = translate(raw)
    problem: str | None = None
    try:
        url = next((entry[f] for f in _URL_FIELDS if isinstance(entry.get(f), str) and entry[f].strip()), None)
        if entry.get("command"):
            config = _stdio(entry, place, machine, notes)
        elif url:
            config = _remote(entry, url, notes)
        else:
            config, problem = {}, "has neither a command nor a url"
    except ValueError as error:
        config, problem = {}, str(error)
    if problem is None and is_toolscout(name, config):
        problem = IS_TOOLSCOUT
    elif problem is None and (raw.get("disabled") is True or raw.get("enabled") is False):
        problem = IS_DISABLED
    if any(raw.get(f) for f in _FILTERS):
        notes.append("its tool filter is not taken over")
    return Entry(name, config, source, place.path, place.scope, problem, tuple(notes), wants)


def _stdio(entry: dict[str, Any], place: Place, machine: Machine, notes: list[str]) -> dict[str, Any]:
    command, args = _command(entry["command"], entry.get("args"), machine, notes)
    config: dict[str, Any] = {"command": command, "args": args}
    env: dict[str, Any] = {}
    if isinstance(entry.get("envFile"), str):
        env.update(_env_file(Path(entry["envFile"]), notes))
    for name in entry.get("env_vars") or ():  # Codex: variables handed on from its own environment
        name = name.get("name") if isinstance(name, dict) else name
        env[str(name)] = f"${{{name}}}"
    given = entry.get("env")
    if isinstance(given, dict):
        env.update({k: v if isinstance(v, str) else _text(v) for k, v in given.items() if v is not None})
    elif isinstance(given, list):  # ["NAME=value"]
        env.update({name: value for name, sep, value in (str(pair).partition("=") for pair in given) if sep})
    if env:
        config["env"] = env
    cwd = entry.get("cwd")
    if isinstance(cwd, str) and cwd:
        config["cwd"] = cwd
    elif machine.project and place.scope != "user" and _is_relative(command, args, machine.project):
        config["cwd"] = str(machine.project)
    return config


def _remote(entry: dict[str, Any], url: str, notes: list[str]) -> dict[str, Any]:
    url = url.strip()
    kind = str(entry.get("type") or entry.get("transport") or "").lower().replace("_", "-")
    if not re.match(r"https?://|\$\{", url):
        raise ValueError(f"its url is not http or https, and transport {kind or 'unknown'} is not supported")
    sse = kind == "sse" or (not kind and "httpUrl" not in entry and re.search(r"/sse/?(\?|$)", url) is not None)
    config: dict[str, Any] = {"url": url, "transport": "sse" if sse else "http"}
    headers: dict[str, str] = {}
    for given in (entry.get("headers"), entry.get("http_headers"), entry.get("requestInit")):
        if isinstance(given, dict):
            given = given.get("headers", given) if "headers" in given else given
            headers.update({str(k): _text(v) for k, v in given.items()})
    for name, variable in (entry.get("env_http_headers") or {}).items():
        headers[str(name)] = f"${{{variable}}}"
    if isinstance(entry.get("bearer_token_env_var"), str):
        headers["Authorization"] = f"Bearer ${{{entry['bearer_token_env_var']}}}"
    if isinstance(entry.get("bearer_token"), str):
        headers["Authorization"] = f"Bearer {entry['bearer_token']}"
    if headers:
        config["headers"] = headers
    if entry.get("auth") == "oauth":
        config["auth"] = "oauth"
    elif entry.get("auth") or entry.get("oauth"):
        notes.append("its sign-in settings are not taken over")
    if entry.get("headersHelper"):
        notes.append("its headersHelper is not taken over")
    return config


def _command(command: Any, args: Any, machine: Machine, notes: list[str]) -> tuple[str, list[str]]:
    """Program and arguments, with Windows shells and ``.cmd`` shims taken off where they only start a launcher."""
    if isinstance(command, list):
        command, args = (str(command[0]) if command else ""), [*map(str, command[1:]), *(args or [])]
    if not isinstance(command, str) or not command.strip():
        raise ValueError("its command is not text")
    if args is not None and not isinstance(args, list):
        raise ValueError("its args are not a list")
    command, words = command.strip(), [_text(a) for a in args or []]
    if (
        not words
        and re.search(r"\s", command)
        and not Path(command).exists()
        and not re.match(r"(?i)[a-z]:\\", command)
    ):
        command, *words = shlex.split(command)
        notes.append("command line split into program and arguments")
    stem = PureWindowsPath(command).name.lower()
    if stem in {"cmd", "cmd.exe"}:
        while words and words[0].lower() in _SHELL_SWITCHES:
            words.pop(0)
        if len(words) == 1 and " " in words[0]:
            words = shlex.split(words[0], posix=False)
        if not words:
            raise ValueError("its cmd call starts nothing")
        command, *words = words
        notes.append("started directly instead of through cmd")
    name = PureWindowsPath(command).name if "\\" in command else PurePosixPath(command).name
    short = re.sub(r"(?i)\.(cmd|exe|bat|ps1)$", "", name)
    bare = "\\" not in command and "/" not in command
    if short.lower() in _LAUNCHERS and (bare or ("\\" in command and not machine.windows)):
        command = short
    return command, words


def _is_relative(command: str, args: Sequence[str], folder: Path) -> bool:
    if command.startswith(("./", "../", ".\\")):
        return True
    return any(not a.startswith("-") and not Path(a).is_absolute() and (folder / a).exists() for a in args if a)


def _env_file(path: Path, notes: list[str]) -> dict[str, str]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        notes.append(f"its envFile {path.name} could not be read")
        return {}
    found = {}
    for line in lines:
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$", line)
        if match:
            found[match.group(1)] = match.group(2).strip("\"'")
    return found


def _translate(text: str, machine: Machine, inputs: Mapping[str, str], wants: dict[str, str]) -> str:
    """Clients' variables as ours: ``${env:X}`` and ``${input:x}`` become ``${X}``, folders become paths."""
    folder = str(machine.project) if machine.project else None
    fixed = {
        "userHome": str(machine.home),
        "workspaceFolder": folder,
        "workspaceRoot": folder,
        "workspaceFolderBasename": Path(folder).name if folder else None,
        "pathSeparator": "\\" if machine.windows else "/",
        "/": "\\" if machine.windows else "/",
    }

    def replace(match: re.Match[str]) -> str:
        kind, name, default = match.group(1), match.group(2), match.group(3) or ""
        if kind == "input:":
            variable = variable_name(name)
            wants[variable] = inputs.get(name, name)
            return f"${{{variable}}}"
        if kind is None and fixed.get(name) is not None and not default:
            return str(fixed[name])
        return f"${{{name}{default}}}"

    return _VARIABLE.sub(replace, text)


def is_toolscout(name: str, config: Mapping[str, Any]) -> bool:
    """Whether an entry starts Toolscout itself: importing that would make it its own upstream."""
    if "command" not in config:
        return name.lower() == "toolscout"
    words = [str(config["command"]), *map(str, config.get("args") or ())]
    program = re.sub(r"(?i)\.(exe|cmd)$", "", PureWindowsPath(words[0]).name.lower())
    if program == "toolscout":
        return True
    asked = any(re.fullmatch(r"toolscout(\[[^\]]*\])?([=@<>~!].*)?", w.lower()) for w in words[1:])
    named = any(PureWindowsPath(w).name.lower() in {"toolscout", "toolscout.exe"} for w in words[1:])
    return asked or (named and (words[-1] == "serve" or "serve" in words))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, (str, int, float, type(None))):
        raise ValueError("a value of its args, env or headers is a list or an object, not text")
    return "" if value is None else str(value)
