"""How a server is run: from a package, or from what the catalogue holds, to the entry of ``mcp.json`` that starts it.

The one place that knows it. ``toolscout add`` writes the entry, ``invoke`` shows it, and an offer to install shows it
to a person before it is written.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolscout.errors import BadInput, NotAllowed, ToolscoutError
from toolscout.server.telling.plain import plain

if TYPE_CHECKING:
    from toolscout.records import EnvVar, Install, Server
    from toolscout.server.config import UpstreamConfig
    from toolscout.server.sandbox.policy import Default

_A_PATH = re.compile(r"\.{1,2}(?:[\\/].*)?", re.DOTALL)

_NPM = re.compile(
    r"(?P<name>(?:@[a-z0-9~][\w.~-]*/)?[a-z0-9~][\w.~-]*)(?:@(?P<version>[\w.^~<>=*+-]+))?", re.IGNORECASE
)
_PYPI = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[\w,.-]+\])?(?:(?:==|@)(?P<version>[\w.!+-]+))?")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]*")
_RUNNERS = {
    "npx",
    "uvx",
    "uv",
    "docker",
    "node",
    "python",
    "python3",
    "bunx",
    "bun",
    "deno",
    "pipx",
    "podman",
    "npm",
    "pnpm",
}
_SCRIPTED = r"(python|pypy)[\d.]*|node|nodejs|ruby|perl|php|(ba|z|da|k|fi)?sh|cmd|powershell|pwsh"
_PLACEHOLDER = re.compile(r"<([A-Za-z][\w .:/|-]{0,60})>")
_PART = re.compile(r"\$?\{([A-Za-z]\w{0,60})\}")
"""What is a person's in an address of the catalogue."""
_OF_A_URL = "%:/?#[]@!$&'()*+,;="
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_OWN_PREFIX = "TOOLSCOUT_"


@dataclass(frozen=True)
class Launch:
    """How one server of the catalogue is run.

    ``entry`` is in the form of ``mcp.json``; its arguments or address may still hold ``<placeholders>``, whose names
    are ``placeholders`` in their order. ``required`` are the variables that must be set for it. A placeholder for a
    secret is not among the placeholders: a reference to a variable stands in its place, and that variable is required.
    """

    server_id: str
    entry: Mapping[str, Any]
    required: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()

    def filled(self, values: Sequence[str]) -> dict[str, Any]:
        """The entry with ``values`` for the placeholders, in order.

        Raises BadInput for too many values and for one that is none, NotAllowed with the command to type for too few.
        """
        if len(values) > len(self.placeholders):
            wanted = ", ".join(f"<{name}>" for name in self.placeholders) or "none"
            raise BadInput(
                f"{self.server_id} takes {len(self.placeholders)} values of yours ({wanted}), "
                f"and {len(values)} were given."
            )
        if len(values) < len(self.placeholders) or any(_PLACEHOLDER.fullmatch(value) for value in values):
            raise NotAllowed(self.unfilled())
        if any(not value.strip() or not value.isprintable() for value in values):
            raise BadInput(f"A value for {self.server_id} is empty or holds control characters.")
        if not self.placeholders:
            return dict(self.entry)
        home = [str(Path(v).expanduser()) if v == "~" or v.startswith("~/") else v for v in values]
        given = iter([quote(v, safe=_OF_A_URL) for v in values] if "url" in self.entry else home)

        def fill(text: str) -> str:
            # A function: in a replacement text a backslash would be read as an escape.
            return _PLACEHOLDER.sub(lambda _: next(given), text)

        if "url" in self.entry:
            return {**self.entry, "url": fill(self.entry["url"])}
        return {**self.entry, "args": [fill(word) for word in self.entry["args"]]}

    def unfilled(self) -> str:
        """One sentence: what is missing, and the command that says it."""
        names = " and ".join(f"<{name}>" for name in self.placeholders)
        values = "a value of yours" if len(self.placeholders) == 1 else "values of yours"
        return f"{self.server_id} needs {values} for {names}, and a person can add it so: {self.add_command()}"

    def add_command(self) -> str:
        """What a person types to add the server, with an ``--arg`` for each placeholder."""
        given = [word for name in self.placeholders for word in ("--arg", f"<{name}>")]
        return shlex.join(["toolscout", "add", self.server_id, *given])


def from_here(words: Sequence[str]) -> list[str]:
    """Write out the paths of a command line that are meant from the current folder: a server is started elsewhere."""

    def absolute(word: str) -> str:
        option, equals, value = word.rpartition("=")
        if _A_PATH.fullmatch(value) or (Path(value).suffix and not Path(value).is_absolute() and Path(value).is_file()):
            return f"{option}{equals}{Path(value).absolute()}"
        return word

    return [absolute(word) for word in words]


def npm_entry(spec: str, args: Sequence[str] = (), *, binary: str | None = None) -> dict[str, Any]:
    """``PACKAGE[@VERSION]`` through npx. Raises BadInput for a bad name, NotAllowed where Node.js is missing."""
    return _entry(_npm_words(spec, args, binary))


def pypi_entry(
    spec: str, args: Sequence[str] = (), *, binary: str | None = None, extra: Sequence[str] = ()
) -> dict[str, Any]:
    """``PACKAGE[==VERSION]`` isolated through ``uv tool run``; ``extra`` are requirements to install beside it.

    Raises BadInput for a bad name.
    """
    return _entry(_pypi_words(spec, args, binary, extra))


def uv_binary() -> str:
    """Path of uv: the one that came with Toolscout, else the one on the PATH. Raises NotAllowed without either."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise NotAllowed("uv is not installed, and PyPI packages are run through it.", "Run: pip install uv")
    return found


def absent(config: UpstreamConfig, default: Default) -> bool:
    """Whether what starts a server is not here: its program, or in a sandbox what installs its package there.

    ``default`` is the sandbox of entries that do not say.
    """
    from toolscout.server.upstreams.process import find_program

    if find_program(config.command, config.cwd, config.env.get("PATH")) is not None:
        return False
    if config.policy(default) is None:
        return True
    from toolscout.server.sandbox.package import installable

    return not installable(config)


def catalogue_launch(server: Server, environ: Mapping[str, str] | None = None) -> Launch:
    """How a server of the catalogue is run on this machine.

    Of the variables that it does not require it gets those that ``environ`` (by default the process's own) sets.

    Raises NotAllowed if the catalogue does not say how it is run, or what runs it is missing here.
    """
    environ = os.environ if environ is None else environ
    install = server.install
    if install.url and not (install.command or "").strip():
        return _remote(server)
    if install.url and server.transport != "stdio":
        line = install_command(server)
        raise NotAllowed(
            f"{server.server_id} speaks HTTP alone, and whoever uses it starts it.",
            f"Run: {line}  Then: toolscout add NAME --url {shlex.quote(install.url)}",
        )
    required = [v.name for v in install.env if v.required]
    env = _environment(install.env, environ)
    words, names, secrets = _with_references(server.server_id, _words(server, list(env)))
    entry = _entry(words) | ({"env": env} if env else {})
    if (other := _other_package(install, entry)) is not None:
        raise NotAllowed(
            f"The catalog says that {server.server_id} is {install.package}, and its command runs {other}.",
            "Do not trust it: what is known of the one says nothing of the other.",
        )
    return Launch(server.server_id, entry, tuple(dict.fromkeys([*required, *secrets])), tuple(names))


def _other_package(install: Install, entry: Mapping[str, Any]) -> str | None:
    """What an entry runs instead of the package that its facts are of; None where it is that one."""
    if install.registry not in ("npm", "pypi", "oci") or not install.package:
        return None
    words = [str(entry["command"]), *map(str, entry["args"])]
    if install.registry == "oci":
        image = re.compile(re.escape(install.package) + "(?:[:@].*)?")
        return None if any(map(image.fullmatch, words)) else shlex.join(words)
    ran, stated = package_of(entry) or shlex.join(words), f"{install.registry}:{install.package}"
    if install.registry == "pypi":  # where these are one name
        ran, stated = (re.sub(r"[-_.]+", "-", name.casefold()) for name in (ran, stated))
    return None if ran == stated else ran


def install_command(server: Server) -> str:
    """The command line that runs a server, or its URL, placeholders and all; empty when the catalogue has none.

    Said of servers that may never be installed: whether this machine has what runs it does not matter.
    """
    if server.install.url and not server.install.command:
        return server.install.url
    try:
        return shlex.join(_words(server, [v.name for v in server.install.env if v.required]))
    except ToolscoutError:
        return ""


def needs(server: Server) -> list[str]:
    """The variables that a server takes keys and settings of a person's from, as far as the catalogue tells."""
    install = server.install
    if install.auth == "oauth":
        return []
    asked = [v.name for v in install.env if v.required or v.secret]
    if install.url and not install.command:
        with contextlib.suppress(ToolscoutError):
            asked = list(_remote(server).required) or asked
    found = [*asked, *_yours(server)[1]]
    return [n for n in dict.fromkeys(found) if _NAME.fullmatch(n) and not n.startswith(_OWN_PREFIX)]


def _yours(server: Server) -> tuple[list[str], list[str]]:
    """What a person puts into a server's command line or address: names of its placeholders, and of variables for its
    keys."""
    try:
        if server.install.url and not server.install.command:
            launch = _remote(server)
            return list(launch.placeholders), [n for n in launch.required if f"${{{n}}}" in launch.entry["url"]]
        return _with_references(server.server_id, _words(server, ()))[1:]
    except ToolscoutError:
        return [], []


def how_to_add(server: Server) -> str:
    """One sentence: what a person types to add a server of the catalogue, and sets before for a key in its command."""
    names, keys = _yours(server)
    launch = Launch(server.server_id, {}, placeholders=tuple(names))
    said = launch.unfilled() if names else f"A person can add it: {launch.add_command()}"
    return f"{said} (it takes {', '.join(keys)} from the environment)" if keys else said


def runs(server: Server, entry: Mapping[str, Any]) -> bool:
    """Whether an entry of ``mcp.json`` runs or calls what the catalogue says of the server, whatever its values are."""
    try:
        launch = catalogue_launch(server)
    except ToolscoutError:
        return False

    def line(of: Mapping[str, Any]) -> str:
        words = [of.get("url")] if "url" in launch.entry else [of.get("command"), *(of.get("args") or ())]
        return "\n".join(map(str, words))

    # A value that a person gave for a placeholder may be any text, but none that leads to another host.
    pattern = ("[^/?#]+" if "url" in launch.entry else ".+").join(
        map(re.escape, _PLACEHOLDER.split(line(launch.entry))[::2])
    )
    return re.fullmatch(pattern, line(entry)) is not None


def package_of(entry: Mapping[str, Any]) -> str | None:
    """What an entry runs or calls: ``npm:NAME``, ``pypi:NAME`` or ``url:ADDRESS``; None where that cannot be told."""
    if entry.get("url"):
        return f"url:{entry['url']}"
    words = [str(entry.get("command") or ""), *map(str, entry.get("args") or ())]
    program = words.pop(0).replace("\\", "/").rpartition("/")[2].removesuffix(".exe").removesuffix(".cmd")
    if program == "cmd" and words[1:]:
        words, program = words[2:], words[1]
    if re.fullmatch(r"python[\d.]*", program) and (run := re.match(r"(?:-[a-zA-Z]+ )*-m ([^. ]+)", " ".join(words))):
        return f"pypi:{run[1].replace('_', '-')}"
    if program == "uv":
        words = words[words.index("run") + 1 :] if "run" in words else words
    if program not in ("npx", "bunx", "uv", "uvx", "pipx"):
        return None
    registry = "npm" if program in ("npx", "bunx") else "pypi"
    for flag in ("--from", "--package", "-p", "--spec"):
        if flag in words[:-1]:
            words = words[words.index(flag) + 1 :]
    name = next((word for word in words if not word.startswith("-") and word != "run"), "")
    scope, rest = name[:1], name[1:]  # the first @ of an npm name may be its scope's
    name = scope + rest.partition("@")[0] if registry == "npm" else re.split(r"[=<>!~@\[ ]", name)[0]
    return f"{registry}:{name}" if name else None


def program_of(entry: Mapping[str, Any]) -> str:
    """What an entry runs or calls, whatever it is given besides: its package, its script, or its program."""
    if found := package_of(entry):
        return found
    command, args = str(entry.get("command") or ""), [*map(str, entry.get("args") or ())]
    name = command.replace("\\", "/").rpartition("/")[2].removesuffix(".exe").removesuffix(".cmd")
    if re.fullmatch(_SCRIPTED, name):
        return shlex.join([command, *[word for word in args if not word.startswith("-")][:1]])
    return shlex.join([command, *args]) if name in _RUNNERS else command


def shown(entry: Mapping[str, Any]) -> str:
    """What an entry runs or calls, on one line, quoted as for a shell; signs that a terminal would obey are escaped."""
    words = [str(entry["command"]), *map(str, entry.get("args") or ())] if "url" not in entry else []
    line = shlex.join(words) if words else str(entry["url"])
    return plain(line)


def _entry(words: Sequence[str]) -> dict[str, Any]:
    """A command line as an entry, with the programs that are found here. Raises NotAllowed where one is missing."""
    program, args = words[0], list(words[1:])
    if program == "uvx":
        return {"command": uv_binary(), "args": ["tool", "run", *args]}
    if program == "npx" and shutil.which("npx") is None:
        raise NotAllowed(
            "npx is not on the PATH, and npm packages need it.", "Install Node.js (nodejs.org), then retry."
        )
    return {"command": program, "args": args}


def _words(server: Server, names: Sequence[str]) -> list[str]:
    """The command line of a server that is a process; ``names`` are the variables that a container is handed.

    Raises NotAllowed where the catalogue has none, BadInput for a package name that is none.
    """
    install = server.install
    command = (install.command or "").strip()
    runner = command.replace("\\", "/").rpartition("/")[2].removesuffix(".exe").removesuffix(".cmd")
    if runner in _RUNNERS and install.args:
        return ["uvx" if runner == "uvx" else command, *install.args]
    if install.registry == "npm" and install.package:
        return _npm_words(_versioned(install, "@"), install.args, command or None)
    if install.registry == "pypi" and install.package:
        return _pypi_words(_versioned(install, "=="), install.args, command or None)
    if install.registry == "oci" and install.package:
        image = install.package if _has_tag(install.package) else _versioned(install, ":")
        if _IMAGE.fullmatch(image) is None:
            raise BadInput(f"{image!r} is not the name of a container image.")
        passed = [word for name in names for word in ("-e", name)]
        return ["docker", "run", "-i", "--rm", *passed, image, *install.args]
    if command and install.registry == "none":
        return [command, *install.args]
    raise NotAllowed(
        f"The catalog does not say how {server.server_id} is installed.",
        "Look at its homepage, then: toolscout add NAME -- COMMAND ARGS...",
    )


def _npm_words(spec: str, args: Sequence[str], binary: str | None) -> list[str]:
    if _NPM.fullmatch(spec) is None:
        raise BadInput(f"{spec!r} is not the name of an npm package.", "Use npm:NAME or npm:@SCOPE/NAME@VERSION.")
    return ["npx", "-y", "--package", spec, "--", binary, *args] if binary else ["npx", "-y", spec, *args]


def _pypi_words(spec: str, args: Sequence[str], binary: str | None, extra: Sequence[str] = ()) -> list[str]:
    match = _PYPI.fullmatch(spec)
    if match is None:
        raise BadInput(f"{spec!r} is not the name of a PyPI package.", "Use pypi:NAME or pypi:NAME==VERSION.")
    source = match["name"] + (match["extras"] or "") + (f"=={match['version']}" if match["version"] else "")
    beside = [word for requirement in extra for word in ("--with", requirement)]
    return ["uvx", *beside, "--from", source, binary or match["name"], *args]


def _versioned(install: Install, sign: str) -> str:
    return f"{install.package}{sign}{install.version}" if install.version else str(install.package)


def _has_tag(image: str) -> bool:
    """Whether an image's name says its version itself; a colon before a slash is a registry's port."""
    return "@" in image or ":" in image.rpartition("/")[2]


def _environment(variables: Sequence[EnvVar], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an entry: references, and the few whose value the catalogue knows.

    Toolscout's own are nobody else's business: a catalogue that names them does not get them.
    """
    env: dict[str, str] = {}
    for variable in variables:
        name = variable.name
        if name.startswith(_OWN_PREFIX) or not _NAME.fullmatch(name):
            continue
        if variable.required or environ.get(name):
            env[name] = f"${{{name}}}"
        elif variable.description == f"{name}=stdio":
            env[name] = "stdio"  # a crawl noted that it speaks over pipes only when it is told so
    return env


def _with_references(server_id: str, words: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """``words`` with references for the placeholders of secrets; names of the other placeholders, and of the variables.

    A key is not typed into a command line, where every process list shows it to those who look for it in a shell's
    history: it is taken from the environment when the server starts.
    """
    from toolscout.server.clients.redact import secret_name, variable_name

    names: list[str] = []
    variables: list[str] = []
    done: list[str] = []
    previous = ""
    for word in words:
        flag = word.partition("=")[0] if word.startswith("-") and "=" in word else previous
        previous = word if word.startswith("-") and "=" not in word else ""

        def put(match: re.Match[str], flag: str = flag) -> str:
            label = match.group(1)
            if not (secret_name(label) or (flag and secret_name(flag))):
                names.append(label)
                return match.group()
            own = variable_name(flag) if flag and secret_name(flag) else variable_name(label)
            # API_KEY and its like may be another server's.
            specific = own.count("_") > 1
            variables.append(own if specific else variable_name(f"{server_id.rpartition('/')[2]} {own}"))
            return f"${{{variables[-1]}}}"

        done.append(_PLACEHOLDER.sub(put, word))
    return done, names, variables


def _remote(server: Server) -> Launch:
    """A server that is called over HTTP; what the catalogue lists as its variables are its headers, or their values.

    Raises NotAllowed where it cannot be told which header a value goes into.
    """
    from toolscout.server.clients.redact import secret_name, variable_name

    short = server.server_id.rpartition("/")[2]
    names: list[str] = []
    required: list[str] = []

    def put(match: re.Match[str]) -> str:
        if not secret_name(match[1]):
            names.append(match[1])
            return f"<{match[1]}>"
        required.append(variable_name(f"{short} {match[1]}"))
        return f"${{{required[-1]}}}"

    url = _PART.sub(put, str(server.install.url))
    if server.install.auth == "oauth":
        transport = "sse" if server.transport == "sse" else "http"
        entry: dict[str, Any] = {"url": url, "transport": transport, "auth": "oauth"}
        return Launch(server.server_id, entry, tuple(required), tuple(names))
    parts = _PART.findall(str(server.install.url))
    wanted = [v for v in server.install.env if v.required and v.name not in parts]
    headers: dict[str, str] = {}
    for variable in wanted:
        if _VARIABLE.fullmatch(variable.name) is None:  # written as headers are: Authorization, X-Api-Key
            required.append(variable_name(f"{short} {variable.name}"))
            headers[variable.name] = f"${{{required[-1]}}}"
        elif len(wanted) == 1:
            required.append(variable.name)
            headers["Authorization"] = f"Bearer ${{{variable.name}}}"
        else:
            raise NotAllowed(
                f"The catalog does not say which header of {server.server_id} takes {variable.name}.",
                f"Look at its homepage, then: toolscout add NAME --url {shlex.quote(str(server.install.url))} "
                "--header 'HEADER=${VARIABLE}'",
            )
    entry = {"url": url, "transport": "sse" if server.transport == "sse" else "http"}
    entry |= {"headers": headers} if headers else {}
    return Launch(server.server_id, entry, tuple(dict.fromkeys(required)), tuple(names))
