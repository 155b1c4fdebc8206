"""What a deployment saw, as records of the data contract."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from toolscout.crawler import dummies
from toolscout.crawler.deploy import Outcome
from toolscout.jsonl import well_formed
from toolscout.records import EnvVar, Install, JsonObject, Server, ServerState, Tool, Transport

_MAX_TOOLS = 10_000
_INSTRUCTIONS = 20_000
"""Most characters of instructions kept."""


def now() -> str:
    """This moment, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def server_record(listed: Server, outcome: Outcome, moment: str) -> Server:
    """A deployed server. The package is its identity, whatever it calls itself; no value of a variable is recorded."""
    assert outcome.listing is not None and outcome.installed is not None and outcome.start is not None
    info, package = outcome.listing.server_info, outcome.installed.metadata
    title, about = info.get("title"), info.get("description")
    name = str(info.get("name") or "").strip()
    website = info.get("websiteUrl")
    return Server(
        server_id=listed.server_id,
        name=str(well_formed(name or listed.name or package.name)),
        title=str(well_formed(title)) if isinstance(title, str) and title.strip() else listed.title,
        description=str(
            well_formed(package.description or listed.description or (about if isinstance(about, str) else ""))
        ),
        summary=listed.summary,
        category=listed.category,
        sources=listed.sources,
        transport=Transport(outcome.endpoint.get("transport", Transport.STDIO)),
        install=_install(listed, outcome),
        version=package.version or listed.version,
        license=package.license or listed.license,
        homepage=package.homepage or listed.homepage or (website if isinstance(website, str) else None),
        popularity=listed.popularity,
        state=ServerState.NEEDS_KEY if outcome.needs_key else ServerState.NEEDS_INSTALL,
        instructions=str(well_formed(outcome.listing.instructions))[:_INSTRUCTIONS]
        if outcome.listing.instructions
        else None,
        protocol_version=outcome.listing.protocol_version[:40] or None,
        checked_at=moment,
    )


def _install(listed: Server, outcome: Outcome) -> Install:
    """How a user starts it: what worked here, with placeholders where this crawl used dummies."""
    assert outcome.installed is not None and outcome.start is not None
    how, package = outcome.start, outcome.installed.metadata
    known = {variable.name: variable for variable in listed.install.env}
    env = list(listed.install.env)
    env += [
        # Of what its code reads without ever having asked for it, the secrets are likeliest what it needs.
        EnvVar(name=name, required=name not in how.guessed or dummies.is_secret(name), secret=dummies.is_secret(name))
        for name in how.env
        if name not in known
    ]
    env += [EnvVar(name=name, description=f"{name}={value}") for name, value in how.fixed.items() if name not in known]
    registry = listed.install.registry
    command, args = how.entry.name, list(how.shown)
    if registry == "pypi" and (outcome.installed.pinned or outcome.installed.extra or command.startswith("python -m ")):
        # More than a command's name: an interpreter's, or one with the resolver's clock set or with optional parts.
        extra = f"[{outcome.installed.extra}]" if outcome.installed.extra else ""
        command, args = (
            "uvx",
            [*outcome.installed.clock, "--from", f"{package.name}{extra}=={package.version}", *command.split(), *args],
        )
    if how.entry.launcher == "bunx":
        # --bun: its first line may name Node.js, which does not run it.
        spec = f"{package.name}@{package.version}" if package.version else package.name
        named = [spec] if command == package.name.rpartition("/")[2] else ["--package", spec, command]
        command, args = "bunx", ["--bun", *named, *args]
    return Install(
        registry=registry,
        package=package.name,
        version=package.version or None,
        command=command,
        args=args,
        env=env,
        url=outcome.endpoint.get("url"),
    )


def tool_records(server_id: str, wire: Sequence[JsonObject], moment: str) -> list[Tool]:
    """Tools in wire form as records; of two with one name the first counts, since callers reach that one."""
    tools: dict[str, Tool] = {}
    for raw in wire[:_MAX_TOOLS]:
        item = well_formed(raw)
        name = item.get("name")
        if not isinstance(name, str) or not name or name in tools:
            continue
        schema, output, hints = item.get("inputSchema"), item.get("outputSchema"), item.get("annotations")
        hints = hints if isinstance(hints, dict) and hints else None
        title = item.get("title")
        if not isinstance(title, str):
            title = hints.get("title") if hints and isinstance(hints.get("title"), str) else None
        description = item.get("description")
        tool = Tool(
            tool_id=f"{server_id}/{name}",
            server_id=server_id,
            name=name,
            title=title,
            description=description if isinstance(description, str) else "",
            input_schema=schema if isinstance(schema, dict) else {},
            output_schema=output if isinstance(output, dict) else None,
            annotations=hints,
            first_seen=moment,
        )
        try:
            tool.fingerprint = tool.computed_fingerprint()
        except (RecursionError, ValueError):
            continue  # nested beyond what JSON writers bear
        tools[name] = tool
    return list(tools.values())
