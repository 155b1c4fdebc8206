"""``set``, ``enable``, ``disable``, ``restart``: change servers that are configured."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.confining import (
    AllowHost,
    AllowNetwork,
    AllowRead,
    AllowWrite,
    Confined,
    check_paths,
    sandbox_entry,
    say_confined,
    widened,
)
from toolscout.commands.listing import exit_if_failed, list_tools_of, show_listed
from toolscout.commands.output import AsJson, Yes, confirm, emit, note, say, show_diff
from toolscout.commands.servers import entry_diff, pairs, references_of, tool_counts
from toolscout.errors import BadInput
from toolscout.secret_store import known_values, open_store
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.config import ServersFile


def set_server(
    name: Annotated[str, typer.Argument(help="A name from `toolscout list`.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND ARGS...]", help="What to run from now on.", show_default=False),
    ] = None,
    url: Annotated[str | None, typer.Option(help="The new address of a remote server.", show_default=False)] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, or NAME alone for the secret ${NAME}. Repeatable.", show_default=False),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; use ${VARIABLE} for a secret. Repeatable.", show_default=False)
    ] = None,
    cwd: Annotated[Path | None, typer.Option(help="Folder to run it in.", show_default=False)] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that a call may take.", show_default=False)] = None,
    keep_alive: Annotated[
        str | None,
        typer.Option(metavar="SECONDS|always", help="How long it lives when nobody uses it.", show_default=False),
    ] = None,
    sandbox: Confined = None,
    allow_network: AllowNetwork = False,
    allow_host: AllowHost = None,
    allow_read: AllowRead = None,
    allow_write: AllowWrite = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="Take out a field: timeout, env.NAME, sandbox.read. Repeatable.", show_default=False
        ),
    ] = None,
    check: Annotated[bool, typer.Option(help="Start it once to list its tools.")] = True,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change how a server is run or called; the rest of its entry stays.

    Shows the change and asks first. A value that looks like a secret is kept apart (toolscout secret), in the place of
    the one that it replaces. What the --allow options name is open beside what was. Nothing is approved: tools that
    are others afterwards wait for your review. A Toolscout that runs starts the server anew at its next call.

    Of another program nothing stays open in the sandbox that was opened for the old one. Exits with 5 if the server
    then does not start or lists nothing; its entry is as changed. A missing key or login is no failure.

    Examples: "toolscout set linear --env LINEAR_API_KEY", "toolscout set notes --allow-read ~/notes --unset timeout",
    "toolscout set files -- npx -y some-files-server ~/other".
    """
    from toolscout.server.clients.redact import Redactor
    from toolscout.server.config import ServersFile, UpstreamConfig
    from toolscout.server.launch import from_here, program_of, shown
    from toolscout.server.sandbox.package import forget
    from toolscout.server.secrecy.secrets import bare_names
    from toolscout.server.upstreams.folder import last_failure

    settings = load_settings()
    servers = ServersFile(settings.servers_file)
    before = servers.entry(name)
    if not (cwd or before.get("cwd")):
        command = from_here(command or [])
    runs = _runs(name, before, command or [], url)
    if ("url" in before and (env or cwd)) or ("command" in before and header):
        raise BadInput("--header is for servers with an address; --env and --cwd are for those that run here.")
    given: dict[str, Any] = {"env": _variables(env or ()), "headers": pairs(header or (), "--header"), **runs}
    values = known_values(settings)
    taken, own = _names_of_secrets(servers, name, before, given)
    given, secrets = Redactor(taken=taken, values=values, renew=own).clean(name, given)
    entry = _without(name, before, unset or ())
    for field, value in given.items():
        if isinstance(value, dict) and value:
            entry[field] = {**(entry.get(field) or {}), **value}
        elif field in runs:
            entry[field] = value
    if runs:
        gone = _AN_ADDRESS if url else ("args",)
        entry = {field: value for field, value in entry.items() if field in runs or field not in gone}
        if program_of(before) != program_of(entry) and isinstance(opened := entry.pop("sandbox", None), dict | bool):
            entry |= {"sandbox": True} if opened else {}  # what was opened was for the other
            entry = dict(UpstreamConfig.parse(name, entry).confined(settings.sandbox).fields)
    if cwd:
        entry["cwd"] = str(cwd.expanduser().absolute())
    if timeout is not None:
        if not math.isfinite(timeout):
            raise BadInput("--timeout takes a number of seconds.")
        entry["timeout"] = round(timeout * 1000)
    if keep_alive is not None:
        entry["keep_alive"] = _seconds(keep_alive)
    if (said := sandbox_entry(sandbox, allow_network, allow_host, allow_read, allow_write)) is not None:
        default = UpstreamConfig.parse(name, {**entry, "sandbox": None}).policy(settings.sandbox)
        entry["sandbox"] = widened(entry.get("sandbox", default and default.as_json()), said)
    config = UpstreamConfig.parse(name, entry)
    if cwd or said is not None or entry.get("sandbox") != before.get("sandbox"):
        check_paths(config, settings)
    kept = {secret.reference: secret.value for secret in secrets if not secret.placeholder}
    wanted = [n for n in bare_names(config.references()) if n not in values and n not in kept]
    failure = None if config.disabled else last_failure(settings.home, config)
    if entry == before and not kept and not wanted and failure is None:
        emit({"changed": None, "entry": entry}) if as_json else say(f"{name} is so already: nothing was changed.")
        return
    if entry == before and not kept:
        note(f"The entry of {name} says so already, but it is not in force.")
        if failure is not None:
            note(f"  {failure.shown()}")
    elif not as_json:
        show_diff(entry_diff(name, before, entry, settings.servers_file))
    if runs:
        note(f"{name} will {'call' if config.url else 'run'}:  {shown(given)}")
        if handed := config.handed(values, kept):
            note(f"  it is handed your {', '.join(handed)}")
    if runs or said is not None or entry.get("sandbox") != before.get("sandbox"):
        say_confined(config, settings)
    if kept:
        note(f"  kept among your secrets, not in its entry: {', '.join(kept)}")
    if wanted:
        note(f"  it needs values of yours: toolscout secret set {' '.join(wanted)}")
    if entry != before or kept:
        confirm(f"Change {name}?", yes)
    open_store(settings).update(kept)
    present = servers.load()
    servers.change(before, config)
    if runs and name in present:
        forget(present[name], [config, *(other for n, other in present.items() if n != name)], settings.home)
    listed = list_tools_of([name], settings) if check and not wanted and not config.disabled else {}
    if as_json:
        emit({"changed": name, "entry": entry, "to_set": wanted, "listed": listed.get(name)})
    elif listed:
        show_listed(listed)
    elif entry != before or kept:
        say(f"Changed {name}.")
    exit_if_failed(listed)


def enable(names: Annotated[list[str], typer.Argument(help="Names from `toolscout list`.")]) -> None:
    """Switch servers on again. Exits with 5 if one that was never listed does not start or lists nothing."""
    _switch(names, disabled=False)


def disable(names: Annotated[list[str], typer.Argument(help="Names from `toolscout list`.")]) -> None:
    """Switch servers off: nothing of them is called until they are enabled; they stay configured."""
    _switch(names, disabled=True)


def restart(names: Annotated[list[str], typer.Argument(help="Names from `toolscout list`.")]) -> None:
    """Have every running Toolscout of this home start servers anew.

    Calls that they have not answered yet end with an error; each is started again by its next call.
    """
    from toolscout.server.config import ServersFile
    from toolscout.server.upstreams.folder import ask_restart

    settings = load_settings()
    servers = ServersFile(settings.servers_file)
    for name in names:
        servers.entry(name)
    for name in names:
        ask_restart(settings.home, name)
    say(f"{', '.join(names)}: stopped where Toolscout runs, and started anew by the next call.")


def _switch(names: Sequence[str], *, disabled: bool) -> None:
    from toolscout.server.config import ServersFile, UpstreamConfig

    settings = load_settings()
    servers = ServersFile(settings.servers_file)
    before = {name: servers.entry(name) for name in names}  # all of them are known before the first is changed
    for name, old in before.items():
        entry = {field: value for field, value in old.items() if field != "disabled"}
        servers.change(old, UpstreamConfig.parse(name, entry | ({"disabled": True} if disabled else {})))
    say(f"{'Disabled' if disabled else 'Enabled'} {', '.join(before)}.")
    counts = {} if disabled else tool_counts(settings)
    if not disabled and (unlisted := [name for name in before if name not in counts]):
        listed = list_tools_of(unlisted, settings)
        show_listed(listed)
        exit_if_failed(listed)


def _seconds(text: str) -> float | bool:
    """``keep_alive`` as an entry has it: seconds, or true for always."""
    try:
        return text == "always" or (int(text) if text.isdecimal() else float(text))
    except ValueError:
        raise BadInput(f"--keep-alive takes a number of seconds or 'always', not {text!r}.") from None


def _variables(texts: Iterable[str]) -> dict[str, str]:
    return pairs([text if "=" in text else f"{text}=${{{text}}}" for text in texts], "--env")


_AN_ADDRESS = ("url", "serverUrl", "httpUrl", "transport", "type")


def _runs(name: str, before: Mapping[str, Any], command: Sequence[str], url: str | None) -> dict[str, Any]:
    """The fields that say what is run or called from now on. Raises BadInput for what is no server of the same kind."""
    if command and url:
        raise BadInput("Give a command or --url, not both.")
    if (command and not before.get("command")) or (url and before.get("command")):
        how = f"-- {shlex.join(command)}" if command else f"--url {shlex.quote(str(url))}"
        raise BadInput(
            f"{name} {'is called at its address' if command else 'runs here'}: it would be another server.",
            f"Put that in its place: toolscout add {shlex.quote(name)} --replace {how}",
        )
    if url:
        return {"url": url}
    rest = {"args": list(command[1:])} if command[1:] else {}
    return {"command": command[0], **rest} if command else {}


def _names_of_secrets(
    servers: ServersFile, name: str, before: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Names that servers refer to, and those that stand for nothing but the values that ``given`` replaces."""
    from toolscout.server.secrecy.secrets import bare_names, references

    configured = servers.load()
    rest = {field: value for field, value in before.items() if field not in given}
    replaced: list[str] = []
    for field, named in given.items():
        old = before.get(field) or {}
        if not isinstance(old, dict):
            replaced += map(str, old if isinstance(old, list) else [old])
            continue
        rest[field] = {key: value for key, value in old.items() if key not in named}
        replaced += [str(old[key]) for key in named if key in old]
    elsewhere = references_of({n: config for n, config in configured.items() if n != name})
    elsewhere += bare_names(references([json.dumps(rest)]))
    # A variable of the environment would win over what is kept under its name.
    own = [n for n in bare_names(references(replaced)) if n not in elsewhere and n not in os.environ]
    return references_of(configured), own


def _without(name: str, entry: Mapping[str, Any], unset: Iterable[str]) -> dict[str, Any]:
    """An entry without some of its fields (``timeout``), or of their keys (``env.NAME``)."""
    left = dict(entry)
    for said in unset:
        field, dot, key = said.partition(".")
        inside = left.get(field)
        keys = inside if isinstance(inside, dict) else {}
        if field not in left or (dot and key not in keys):
            raise BadInput(f"The entry of {name} has no {said}.", f"It has: {', '.join(left)}")
        left[field] = {k: v for k, v in keys.items() if k != key} if dot else None
        if field == "sandbox" and dot and not left[field]:
            left[field] = True  # a sandbox that opens nothing, not none
        elif not left[field]:
            del left[field]
    return left
