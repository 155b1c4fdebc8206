"""``import``: take over the servers of known clients, shown before it is done."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.confining import AllowNetwork, Confined, sandbox_entry
from toolscout.commands.listing import exit_if_failed, list_added, show_listed, summary
from toolscout.commands.output import AsJson, Yes, agreed, confirm, emit, note, said_to_stay, say, table
from toolscout.errors import BadInput
from toolscout.secret_store import SecretStore, known_values, open_store
from toolscout.server.clients.known import NAMES
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.clients.importing import ImportPlan
    from toolscout.server.sandbox.wants import Wants
    from toolscout.settings import Settings


_LISTING_SECONDS = 50.0
"""What listing may take, so that an import is done in a minute."""
SOURCES_HELP = f"{NAMES}, or files. Without any: every known client."


def import_servers(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLIENT|FILE]...",
            help=SOURCES_HELP,
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        Path | None, typer.Option(help="Folder whose project-level configuration is read too.", show_default="here")
    ] = None,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--secrets/--no-secrets",
            help="Keep the secrets that are found (toolscout secret), or leave them where they are.",
            show_default="asks; --yes keeps them",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be taken over, change nothing.")] = False,
    sandbox: Confined = None,
    allow_network: AllowNetwork = False,
    check: Annotated[bool, typer.Option(help="Start each imported server once to list its tools.")] = True,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take over the servers that your clients have configured.

    Shows what it will take over and asks first. In its own configuration secrets become references such as
    ${GITHUB_TOKEN}; their values are kept in the system's keyring, or where there is none in a file that only you can
    read, so that the servers work however a client is started. With --yes and no name, project-level files of the
    current folder are left out (give --project to include them): they may be somebody else's.

    Servers in a sandbox need folders and the network opened: what each seems to need is shown, by its lines and by the
    catalog, and asked in one question. --yes opens the folders, and the network for the addresses and keys, that your
    client's own file names, and nothing else.

    The servers are started side by side to list their tools, for a minute at most; the last line says how many work,
    which need a key, and which failed and why. Exits with 5 if one failed, took too
    long or lists nothing; all stay configured. A missing key is no failure.
    """
    from toolscout.server.clients.importing import apply_import, plan_import, read_sources
    from toolscout.server.clients.known import Machine
    from toolscout.server.config import ServersFile

    settings = load_settings()
    wary = yes and not sources and project is None
    folder = None if wary else (project or Path.cwd()).expanduser().absolute()
    reading = read_sources(sources or (), Machine(project=folder))
    servers = ServersFile(settings.servers_file)
    store = open_store(settings)
    plan = plan_import(reading, servers.load(), known_values(settings))
    if (said := sandbox_entry(sandbox, allow_network)) is not None:
        plan = plan.confined(said)
    wanted = _wants(plan, settings)
    if as_json and dry_run:
        emit(_plan_json(plan))
        _refuse_unreadable(plan)
        return
    if not as_json:
        _show_plan(plan)
    if wary and not as_json and (left := _project_files()):
        note(f"Left out, as project files may be somebody else's (--project . includes them): {', '.join(left)}")
    if not as_json:
        _refuse_unreadable(plan)
        _show_wants(wanted, yes)
    if dry_run:
        return
    listed: dict[str, Any] = {}
    if plan.additions:
        count = len(plan.additions)
        confirm(f"Take over {count} server{'s' if count > 1 else ''}?", yes)
        plan = _steered(plan, yes)
        plan = _opened(plan, wanted, settings, yes)
        keeps = bool(plan.secrets()) and _keep_secrets(plan, keep, yes)
        names = apply_import(plan, servers, store if keeps else None, settings.sandbox)
        if check:
            try:
                listed = list_added(names, settings, within=_LISTING_SECONDS)
            except BaseException:
                if not as_json:
                    _say_to_set(plan, store)
                raise
    if as_json:
        emit(_plan_json(plan) | {"listed": listed})
        _refuse_unreadable(plan)
    elif plan.items:
        if listed:
            show_listed(listed)
        _say_to_set(plan, store)  # last: among what the servers answer it would scroll past
        say(_summary(plan, listed))
    exit_if_failed(listed)


def _wants(plan: ImportPlan, settings: Settings) -> dict[str, Wants]:
    """What those of the servers to be written that run in a sandbox are likely to need opened there, by name."""
    from toolscout.commands.servers import open_pack
    from toolscout.server.config import UpstreamConfig
    from toolscout.server.launch import package_of
    from toolscout.server.sandbox.wants import wants

    # As the client has them: a path that looks like a secret is a reference in ours.
    configs = [
        UpstreamConfig.parse(i.name, {**i.entry.config, "sandbox": i.config.get("sandbox")}) for i in plan.additions
    ]
    confined = [(config, policy) for config in configs if (policy := config.policy(settings.sandbox)) is not None]
    pack = open_pack(settings) if confined else None
    found: dict[str, Wants] = {}
    for config, policy in confined:
        package = package_of(config.fields)
        known = pack.server_of(package) if pack is not None and package else None
        tools = pack.listed_tools(known.server_id) if pack is not None and known is not None else ()
        if wanted := wants(config, policy, settings.home, known, tools):
            found[config.name] = wanted
    return found


def _show_wants(wanted: Mapping[str, Wants], yes: bool) -> None:
    if not wanted:
        return
    rows = []
    for name, needs in wanted.items():
        folders = [f"{path} (write)" for path in needs.write] + [f"{path} (read)" for path in needs.read]
        network = f"yes: {needs.network}" if needs.network else ""
        if needs.likely:
            left = f"no, though it {needs.likely}: toolscout set {shlex.quote(name)} --allow-network"
            network = left if yes else f"yes: it {needs.likely}"
        rows.append([name, "; ".join(folders), network])
    note(
        "\nThey run in a sandbox. Opened there is what these files name:"
        if yes
        else "\nThey run in a sandbox, and seem to need there:"
    )
    table([row for row in rows if any(row[1:])], ["server", "folders", "network"])
    for name, needs in wanted.items():
        for remark in needs.remarks:
            note(f"{name}: {remark}")


def _opened(plan: ImportPlan, wanted: Mapping[str, Wants], settings: Settings, yes: bool) -> ImportPlan:
    """The plan with what its servers need opened, if the person agrees; ``yes`` agrees to what their own lines name."""
    from toolscout.server.config import UpstreamConfig

    sandboxes: dict[str, Any] = {}
    for item in plan.additions:
        policy = UpstreamConfig.parse(item.name, item.config).policy(settings.sandbox)
        if policy is not None and item.name in wanted:
            widened = wanted[item.name].added_to(policy, likely=not yes)
            if widened != policy:
                sandboxes[item.name] = widened.as_json()
    return plan.opened(sandboxes) if sandboxes and (yes or agreed("Open these?")) else plan


def _steered(plan: ImportPlan, yes: bool) -> ImportPlan:
    """The plan without variables that change what code is run, unless the person wants them; ``yes`` wants those of the
    person's own files, and no project's."""
    if not (steering := plan.steering(projects=yes)):
        return plan
    note("\nThese variables change which program code is run, or where it is fetched from:")
    for server, variables in steering.items():
        for name, value in variables.items():
            note(f"  {server}: {shlex.quote(f'{name}={value}')}")
    if not yes and typer.confirm("Take them over, too?", default=False, err=True):
        return plan
    note("They are left out. To set one: toolscout set SERVER --env NAME=VALUE")
    return plan.without(steering)


def _summary(plan: ImportPlan, listed: dict[str, Any]) -> str:
    """What came of the import, in one line."""
    here, left = (sum(item.action == action for item in plan.items) for action in ("same", "skip"))
    also = [f"{here} {'was' if here == 1 else 'were'} here already"] if here else []
    also += [f"{left} {'was' if left == 1 else 'were'} left"] if left else []
    said = [f"{len(plan.additions)} taken over", *also]
    return f"{', '.join(said)}{': ' + summary(listed) if listed else '.'}"


def _refuse_unreadable(plan: ImportPlan) -> None:
    """Exit as for bad input where there were files, and not one of them could be read. The reasons are shown by now."""
    if plan.failures and not plan.files:
        raise typer.Exit(BadInput.exit_code)


def _project_files() -> list[str]:
    """Project-level configurations of the current folder that hold servers."""
    from toolscout.server.clients.importing import read_sources
    from toolscout.server.clients.known import Machine

    entries = read_sources((), Machine(project=Path.cwd())).entries
    return sorted({str(entry.path) for entry in entries if entry.scope == "project"})


def _show_plan(plan: ImportPlan) -> None:
    for path, reason in plan.failures:
        note(f"Left alone: {reason}" if str(path) in reason else f"Left alone: {path}: {reason}")
    if not plan.items:
        read = f" in {len(plan.files)} files" if plan.files else ""
        say(f"No servers were found{read}. Name a file, or a client: {NAMES}.")
        return
    rows = []
    for item in plan.items:
        remarks = [item.why] if item.why else []
        remarks += list(item.entry.notes) if item.action == "add" else []
        remarks += [f"it is handed your {', '.join(item.handed)}"] if item.handed else []
        if item.action == "add":
            remarks += [f"{s.where} -> ${s.reference}" for s in item.secrets]
            env = {n: str(v) for n, v in (item.config.get("env") or {}).items() if not str(v).startswith("${")}
            remarks += [f"sets {shlex.quote(f'{name}={value}')}" for name, value in env.items()]
        where = item.entry.source if item.entry.scope == "user" else f"{item.entry.source} ({item.entry.scope})"
        what = {"add": "take over", "same": "have it", "skip": "leave"}[item.action]
        rows.append([what, item.name, where, item.launch() if item.action == "add" else "", "; ".join(remarks)])
    table(rows, ["", "name", "from", "runs", "remarks"])


def _keep_secrets(plan: ImportPlan, keep: bool | None, yes: bool) -> bool:
    """Whether the secrets of the plan are kept: as the option says, or the person."""
    count = len(plan.secrets())
    if keep is None:
        keep = yes or agreed(f"Keep the {count} secret{'s' if count > 1 else ''} of these files?")
    return keep


def _say_to_set(plan: ImportPlan, store: SecretStore) -> None:
    if kept := [name for name in plan.secrets() if name in store]:
        note(f"Kept among your secrets (toolscout secret list): {', '.join(kept)}.")
    if differing := [name for name, value in plan.secrets().items() if store.find(name) not in (None, value)]:
        note(said_to_stay(differing, "these files"))
    here = {*os.environ, *store}
    missing = {n: about for n, about in plan.to_set().items() if not n.startswith("keyring:") and n not in here}
    if missing:
        note("\nThese values are missing:")
        for name, about in missing.items():
            note(f"  toolscout secret set {name}    {about}")


def _plan_json(plan: ImportPlan) -> dict[str, Any]:
    return {
        "servers": [
            {
                "name": i.name,
                "action": i.action,
                "why": i.why,
                "from": i.entry.source,
                "file": str(i.entry.path),
                "scope": i.entry.scope,
                "entry": dict(i.config),
                "secrets": [{"where": s.where, "reference": s.reference} for s in i.secrets if i.action == "add"],
                "handed": list(i.handed),
                "notes": list(i.entry.notes),
            }
            for i in plan.items
        ],
        "files": [str(f) for f in plan.files],
        "failures": [{"file": str(path), "reason": reason} for path, reason in plan.failures],
        "to_set": plan.to_set(),
    }
