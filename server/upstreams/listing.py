"""An upstream's tools as records, for the catalogue."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toolscout.records import EnvVar, Install, JsonObject, Server, ServerState, Tool, Transport
from toolscout.server.clients.redact import secret_value, url_secrets
from toolscout.server.config import UpstreamConfig
from toolscout.server.secrecy.secrets import REFERENCE, looks_secret, references
from toolscout.server.secrecy.suspect import given

if TYPE_CHECKING:
    from toolscout.server.upstreams.link import Link
    from toolscout.server.upstreams.upstream import Upstream

_MAX_TOOLS = 10_000


async def read_listing(upstream: Upstream, *, fresh: bool = False) -> tuple[Server, list[Tool]]:
    """Server and tools of a configured upstream, which is known by its configured name, whatever it calls itself."""
    raw = await upstream.list_tools(fresh=fresh)
    config, link = upstream.describe()
    server = _server(upstream.server_id, config, link)
    if link is not None:
        for field in ("name", "title", "version", "description", "homepage", "instructions"):
            if text := getattr(server, field):
                setattr(server, field, upstream.hide(text))
    return server, tools_of(upstream.server_id, raw)


def tools_of(server_id: str, raw: list[JsonObject]) -> list[Tool]:
    """The tools of a listing in wire form, as records."""
    tools: dict[str, Tool] = {}
    for item in raw[:_MAX_TOOLS]:
        tool = _tool(server_id, item)
        if tool is not None:
            tools.setdefault(tool.name, tool)  # a name can be called only once: the first wins
    return list(tools.values())


def server_from_config(config: UpstreamConfig) -> Server:
    """What can be said of an upstream before it has run: no value of its environment or headers is in it."""
    return _server(config.name, config, None)


def _server(server_id: str, config: UpstreamConfig | None, link: Link | None) -> Server:
    described = str(config.fields.get("description") or "") if config else ""
    server = Server(
        server_id=server_id,
        name=server_id,
        description=described,
        transport=config.transport if config else Transport.STDIO,
        install=install_of(config) if config else Install(),
        state=ServerState.READY if link is not None else ServerState.UNAVAILABLE,
    )
    if link is None:
        return server
    session = link.session
    info = session.server_info
    if info is not None:
        server.name = info.name or server_id
        server.title = info.title
        server.version = info.version or None
        server.description = described or (getattr(info, "description", None) or "")
        server.homepage = getattr(info, "website_url", None)
    server.instructions = session.instructions
    server.protocol_version = session.protocol_version
    server.checked_at = datetime.now(UTC).isoformat(timespec="seconds")
    return server


def install_of(config: UpstreamConfig) -> Install:
    """How the upstream is started, without secret values: names of variables only, literal values left out."""
    if config.transport is not Transport.STDIO:
        names = references([config.url, *config.headers.values(), config.auth or ""])
        return Install(
            registry="url",
            url=public_url(config.url),
            env=[EnvVar(name=name, required=True, secret=True) for name in names],
        )
    registry, package, version = _package(config.command, config.args)
    variables = {
        name: EnvVar(name=name, required=True, secret=looks_secret(name) or bool(references([value])))
        for name, value in config.env.items()
    }
    return Install(
        registry=registry,
        package=package,
        version=version,
        command=config.command,
        args=without_secrets(config.args),
        env=list(variables.values()),
    )


def public_url(url: str) -> str:
    """A URL without user, password and query, where keys are kept, and without keys in its path."""
    for secret in url_secrets(url):
        url = url.replace(secret, "***")
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def without_secrets(args: tuple[str, ...]) -> list[str]:
    """Arguments with the values of options that look secret replaced (``--api-key X``, ``--token=X``)."""
    shown: list[str] = []
    hide_next = False
    for arg in args:
        name, equals, _ = arg.partition("=")
        if hide_next and not arg.startswith("-"):
            shown.append("***")
            hide_next = False
            continue
        hide_next = False
        if arg.startswith("-") and looks_secret(name) and " " not in name:
            shown.append(f"{name}=***" if equals else arg)
            hide_next = not equals
        else:
            # Such as postgres://user:password@host, or a whole "--password X"; a reference is no secret.
            shown.append("***" if secret_value(arg) or given(REFERENCE.sub("", arg)) else arg)
    return shown


def fetches(config: UpstreamConfig) -> bool:
    """Whether its first start has a package or an image to fetch."""
    return bool(config.command) and _package(config.command, config.args)[0] != "none"


def _package(command: str, args: tuple[str, ...]) -> tuple[str, str | None, str | None]:
    """Registry, package and version behind the usual runners (npx, uvx, docker run ...)."""
    name = command.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".cmd").removesuffix(".exe")
    words = [a for a in args if not a.startswith("-")]
    if name in {"npx", "bunx", "pnpx"} and words:
        package, at, version = words[0].rpartition("@")
        return ("npm", package, version) if at and package else ("npm", words[0], None)
    if name == "uvx" and words:
        source = next((args[i + 1] for i, a in enumerate(args[:-1]) if a == "--from"), words[0])
        package, _, version = source.partition("==") if "==" in source else source.partition("@")
        return "pypi", package, version or None
    if name == "docker" and words[:1] == ["run"] and len(words) > 1:
        image = next((w for w in reversed(words[1:]) if "/" in w or ":" in w), None)
        return ("oci", image, None) if image else ("none", None, None)
    return "none", None, None


def _unwritable(name: str) -> bool:
    """Whether a name holds control characters or halves of surrogates: a database keeps it as another name, and what is
    then approved is not what would be called."""
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in name)


def _tool(server_id: str, item: JsonObject) -> Tool | None:
    name = item.get("name")
    if not isinstance(name, str) or not name or _unwritable(name):
        return None
    annotations = item.get("annotations")
    schema, output = item.get("inputSchema"), item.get("outputSchema")
    description, title = item.get("description"), item.get("title")
    hints = annotations if isinstance(annotations, dict) and annotations else None
    if not isinstance(title, str):
        title = hints.get("title") if hints and isinstance(hints.get("title"), str) else None
    return Tool(
        tool_id=f"{server_id}/{name}",
        server_id=server_id,
        name=name,
        title=title,
        description=description if isinstance(description, str) else "",
        input_schema=schema if isinstance(schema, dict) else {},
        output_schema=output if isinstance(output, dict) else None,
        annotations=hints,
    )
