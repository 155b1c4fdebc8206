"""Take servers over from clients: plan first, show the plan, then write it."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.records import canonical_json
from toolscout.secret_store import SecretStore
from toolscout.server.clients.known import CLIENTS, Machine, get_client, is_client
from toolscout.server.clients.read import Entry, Reading, read_client, read_file
from toolscout.server.clients.redact import REFERENCE, Redactor, Secret
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.launch import shown
from toolscout.server.sandbox.policy import Default
from toolscout.server.secrecy.secrets import REFERENCE as NAMED_REFERENCE
from toolscout.server.secrecy.secrets import bare_names
from toolscout.server.upstreams.environment import steers

_IDENTITY = ("command", "args", "env", "cwd", "url", "headers", "auth")


@dataclass(frozen=True)
class Planned:
    """What happens to one entry: ``add`` under ``name``, or ``same`` (there already), or ``skip``."""

    entry: Entry
    name: str
    action: str
    why: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The entry as it will be written: secrets replaced by references."""

    secrets: tuple[Secret, ...] = ()
    handed: tuple[str, ...] = ()
    """Names with a value here that it refers to, though its entry does not hold the value."""

    same_as: str = ""
    """For ``same``: the configured server's name."""

    def secrets_as(self, config: UpstreamConfig) -> dict[str, str]:
        """The values of its secrets, by the names that an equal server (``same_as``) refers to them by."""
        values = {s.reference: s.value for s in self.secrets if not s.placeholder}
        pairs = zip(_referred(self.config), _referred(_as_dict(config)), strict=False)
        return {own: values[theirs] for theirs, own in pairs if theirs in values}

    def launch(self) -> str:
        """What will run or be called, and where, on one line, without secrets."""
        folder = f" (in {self.config['cwd']})" if self.config.get("cwd") else ""
        return shown(self.config) + folder


@dataclass
class ImportPlan:
    """Everything that an import would do."""

    items: list[Planned] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    failures: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def additions(self) -> list[Planned]:
        """The entries that will be written."""
        return [item for item in self.items if item.action == "add"]

    def confined(self, sandbox: Any) -> ImportPlan:
        """The same with this ``sandbox`` in every entry to be written that is run here."""
        return self.opened({item.name: sandbox for item in self.additions if "url" not in item.config})

    def opened(self, sandboxes: Mapping[str, Any]) -> ImportPlan:
        """The same with these sandboxes, by name, in the entries to be written."""
        items = [
            replace(item, config={**item.config, "sandbox": sandboxes[item.name]})
            if item.action == "add" and item.name in sandboxes
            else item
            for item in self.items
        ]
        return replace(self, items=items)

    def steering(self, *, projects: bool = False) -> dict[str, dict[str, str]]:
        """Variables by server that change what code it runs; ``projects``: not those of the person's own files."""
        found = {
            item.name: {name: str(value) for name, value in (item.config.get("env") or {}).items() if steers(name)}
            for item in self.additions
            if not (projects and item.entry.scope == "user" and item.entry.source != "file")
        }
        return {name: variables for name, variables in found.items() if variables}

    def without(self, variables: Mapping[str, Container[str]]) -> ImportPlan:
        """The same without these variables, by server."""
        items = []
        for item in self.items:
            left = variables.get(item.name, ()) if item.action == "add" else ()
            env = {name: value for name, value in (item.config.get("env") or {}).items() if name not in left}
            items.append(replace(item, config={**item.config, "env": env}) if left else item)
        return replace(self, items=items)

    def secrets(self) -> dict[str, str]:
        """Values that were found in the entries to be written, by the names that stand for them."""
        return {s.reference: s.value for item in self.additions for s in item.secrets if not s.placeholder}

    def to_set(self) -> dict[str, str]:
        """Names that the imported servers refer to, with what each is for."""
        wanted: dict[str, str] = {}
        for item in self.additions:
            config = UpstreamConfig.parse(item.name, item.config)
            where = {s.reference: s.where for s in item.secrets}
            for name in config.references():
                about = item.entry.wants.get(name) or where.get(name, "")
                wanted.setdefault(name, f"{item.name}: {about}" if about else item.name)
        return wanted


def read_sources(sources: Iterable[str], machine: Machine) -> Reading:
    """Read the named clients and files; without any, every known client.

    Raises NotFound or BadInput for a named file that is missing or cannot be parsed.
    """
    reading = Reading()
    for source in list(sources) or list(CLIENTS):
        if is_client(source):
            reading.add(read_client(get_client(source), machine))
        else:
            path = Path(source).expanduser()
            if not path.exists() and re.fullmatch(r"[A-Za-z-]+", source):
                get_client(source)  # neither a file nor a client: the error lists the clients
            reading.add(read_file(path, machine))
    return reading


def plan_import(
    reading: Reading, existing: Mapping[str, UpstreamConfig], values: Mapping[str, str] | None = None
) -> ImportPlan:
    """Decide for every entry what is done with it; nothing is written.

    Args:
        existing: the configured servers.
        values: what references stand for; by default the environment.
    """
    taken = bare_names(name for config in existing.values() for name in config.references())
    redactor = Redactor(taken=taken, values=values)
    plan = ImportPlan(files=list(reading.files), failures=list(reading.failures))
    known = {identity(_as_dict(config)): name for name, config in existing.items()}
    added: dict[str, list[tuple[str, list[str | None]]]] = {}
    names = set(existing)
    for entry in reading.entries:
        if entry.problem:
            plan.items.append(Planned(entry, entry.name, "skip", entry.problem))
            continue
        wanted = re.sub(r"[\x00-\x1f\x7f]+", "-", entry.name).strip() or entry.source
        config, secrets = redactor.clean(wanted, entry.config, entry.files)
        what, held = identity(config), _held(config, secrets, os.environ if values is None else values)
        same = known.get(what) or next((name for name, other in added.get(what, ()) if _agree(held, other)), None)
        if same is not None:
            why = "already there" if same == wanted else f"the same as {same}"
            plan.items.append(Planned(entry, wanted, "same", why, config, tuple(secrets), same_as=same))
            continue
        try:
            UpstreamConfig.parse(wanted, config)
        except BadInput as error:
            plan.items.append(Planned(entry, wanted, "skip", str(error), config))
            continue
        name = _free_name(wanted, entry, names)
        why = "" if name == wanted else f"renamed: {wanted} is another server"
        added.setdefault(what, []).append((name, held))
        names.add(name)
        plan.items.append(Planned(entry, name, "add", why, config, tuple(secrets)))
    here = {*plan.secrets(), *(os.environ if values is None else values)}
    plan.items = [replace(item, handed=_handed(item, here)) if item.action == "add" else item for item in plan.items]
    return plan


def _held(config: Mapping[str, Any], secrets: Iterable[Secret], values: Mapping[str, str]) -> list[str | None]:
    """What its references stand for, where that is known."""
    found = {secret.reference: secret.value for secret in secrets if not secret.placeholder}
    return [found.get(name, values.get(name)) for name in _referred(config)]


def _agree(held: Iterable[str | None], other: Iterable[str | None]) -> bool:
    """Whether two servers of equal identity can be one: with different secrets they are two accounts."""
    return all(one is None or two is None or one == two for one, two in zip(held, other, strict=False))


def _handed(item: Planned, values: Container[str]) -> tuple[str, ...]:
    own = {secret.reference for secret in item.secrets if not secret.placeholder}
    return tuple(UpstreamConfig.parse(item.name, item.config).handed(values, own))


def apply_import(
    plan: ImportPlan, servers: ServersFile, store: SecretStore | None = None, sandbox: Default = "off"
) -> list[str]:
    """Write the plan's additions, in the ``sandbox`` that is in force where they say nothing; their names.

    With a ``store``, their secrets are kept there first; a name that has another value there keeps it.
    """
    if store is not None:
        store.keep(plan.secrets())
    for item in plan.additions:
        servers.add(UpstreamConfig.parse(item.name, dict(item.config)).confined(sandbox), overwrite=False)
    return [item.name for item in plan.additions]


def identity(config: Mapping[str, Any]) -> str:
    """What a server is, whatever its references are called: two entries of equal identity start the same thing."""

    def bare(value: Any) -> Any:
        if isinstance(value, str):
            return "${}" if value.startswith("keyring:") else REFERENCE.sub("${}", value)
        if isinstance(value, (list, tuple)):
            return [bare(item) for item in value]
        if isinstance(value, Mapping):
            return {str(k): bare(v) for k, v in value.items()}
        return value

    return canonical_json({key: bare(config[key]) for key in _IDENTITY if config.get(key)})


def _referred(config: Mapping[str, Any]) -> list[str]:
    """Names that a configuration refers to, in an order that equal ones have in common."""
    text = canonical_json({key: config[key] for key in _IDENTITY if config.get(key)})
    return [match["name"] for match in NAMED_REFERENCE.finditer(text)]


def _as_dict(config: UpstreamConfig) -> dict[str, Any]:
    if config.command:
        return {"command": config.command, "args": list(config.args), "env": dict(config.env), "cwd": config.cwd}
    return {"url": config.url, "headers": dict(config.headers), "auth": config.auth}


def _free_name(name: str, entry: Entry, taken: set[str]) -> str:
    if name not in taken:
        return name
    project = entry.scope not in ("user", "project")
    suffix = Path(entry.scope).name if project else (entry.source if entry.source != "file" else entry.path.stem)
    candidate, number = f"{name}-{suffix}", 2
    while candidate in taken:
        candidate = f"{name}-{suffix}-{number}"
        number += 1
    return candidate
