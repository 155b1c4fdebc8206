"""``add``, ``remove``, ``list``: the upstream servers of this installation."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from toolscout.commands.confining import (
    AllowHost,
    AllowNetwork,
    AllowRead,
    AllowWrite,
    Confined,
    check_paths,
    sandbox_entry,
    say_confined,
)
from toolscout.commands.listing import exit_if_failed, list_added, show_listed
from toolscout.commands.output import (
    AsJson,
    Yes,
    ask,
    confirm,
    emit,
    note,
    printable,
    say,
    show_diff,
    table,
    with_engine,
)
from toolscout.errors import BadInput, NotFound, StorageError, ToolscoutError
from toolscout.records import Server, ServerState, age_shown, publisher_shown, warning_shown
from toolscout.secret_store import known_values, open_store
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.index.pack.search import PackIndex
    from toolscout.server.config import UpstreamConfig
    from toolscout.server.engine import Engine
    from toolscout.settings import Settings


class RunsCommand(TyperCommand):
    """``add`` and ``set``, which take no option of the server's command for their own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse. Raises BadInput where options follow a command that no ``--`` goes before."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        if (command := ctx.params.get("command")) and "--" not in given:
            after = given[given.index(command[0], given.index(ctx.params["name"]) + 1) :]
            # Of a server that is there a stray word must not become the program.
            if any(word.startswith("-") for word in after) or ctx.info_name == "set":
                written = shlex.join([ctx.params["name"], "--", *after])
                raise BadInput(
                    "What belongs to the command cannot be told: put -- before the command.",
                    f"Run: toolscout {ctx.info_name} {written}, with options of {ctx.info_name}'s own before the --.",
                )
        return rest


def add(
    name: Annotated[
        str, typer.Argument(help="A name of your choice, npm:PACKAGE, pypi:PACKAGE, a catalog server id, or starter.")
    ],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ARGS...]", help="What to run.", show_default=False)
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of a remote server.", show_default=False)] = None,
    transport: Annotated[str | None, typer.Option(help="http or sse.", show_default="by the address")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; use ${VARIABLE} for a secret. Repeatable.", show_default=False)
    ] = None,
    oauth: Annotated[
        bool, typer.Option("--oauth", help="A remote server that you log in to with the browser.")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; use ${VARIABLE} for a secret. Repeatable.", show_default=False)
    ] = None,
    cwd: Annotated[Path | None, typer.Option(help="Folder to run it in.", show_default=False)] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", help="pypi: a requirement to install beside it, such as 'mcp<2'.", show_default=False),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            help="Catalog server: a value for the next placeholder in its command line or address. Repeatable.",
            show_default=False,
        ),
    ] = None,
    alias: Annotated[
        str | None, typer.Option("--name", help="Name for a package.", show_default="the package's")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Replace a server of that name: shows the difference, and approves its tools as they are now.",
        ),
    ] = False,
    sandbox: Confined = None,
    allow_network: AllowNetwork = False,
    allow_host: AllowHost = None,
    allow_read: AllowRead = None,
    allow_write: AllowWrite = None,
    check: Annotated[bool, typer.Option(help="Start it once to list its tools.")] = True,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add a server: by its command, its address, its package, or from the catalog.

    Shows what will run and asks first. Packages from PyPI run isolated through uv, those from npm through npx. A value
    that looks like a secret is kept apart (toolscout secret): its entry holds a reference.
    Servers of the catalog that take a folder, an address or a key of yours ask for it; --arg says it beforehand. In a
    sandbox (Linux,
    bubblewrap) a server sees no files of yours and no network but what the --allow options open. Exits with 5 if the
    server does not start or lists nothing; it stays configured. A missing key or login is no failure.

    Examples: "toolscout add files -- npx -y some-files-server ~/notes", "toolscout add docs --url
    https://example.com/mcp", "toolscout add pypi:mcp-server-sqlite".
    """
    from toolscout.server.clients.redact import Redactor
    from toolscout.server.config import ServersFile, UpstreamConfig, in_place_of
    from toolscout.server.launch import from_here, shown

    settings = load_settings()
    servers = ServersFile(settings.servers_file)
    if name == "starter" and not command and not url:
        _add_starter(servers, settings, yes=yes, check=check, as_json=as_json)
        return
    if not cwd:
        command = from_here(command or [])
    asks = sys.stdin.isatty() and not yes
    server_id, entry, required = _entry(name, command or [], url, transport, beside or (), arg or (), settings, asks)
    _merge_options(entry, header or (), env or (), cwd)
    if oauth:
        if "url" not in entry:
            raise BadInput("--oauth is for --url.")
        entry["auth"] = "oauth"
    server_id = alias or server_id
    present = servers.load()
    if (said := sandbox_entry(sandbox, allow_network, allow_host, allow_read, allow_write)) is not None:
        entry["sandbox"] = said
    elif server_id in present and present[server_id].policy("off") is not None and "command" in entry:
        entry["sandbox"] = True  # what takes a confined server's place is confined; what was opened was for the other
    if (server_id in present or server_id in servers.problems) and not replace:
        raise BadInput(f"A server named '{server_id}' is configured already.", "Use another name, or --replace.")
    values = known_values(settings)
    entry, secrets = Redactor(taken=references_of(present), values=values).clean(server_id, entry)
    config = UpstreamConfig.parse(server_id, entry).confined(settings.sandbox)
    check_paths(config, settings)
    if replace and not as_json:
        with suppress(NotFound):
            old = servers.entry(server_id)
            diff = entry_diff(server_id, old, in_place_of(old, config), servers.path)
            show_diff(diff) if diff else note(f"The entry of {server_id} stays as it is.")
    note(f"{server_id} will {'call' if config.url else 'run'}:  {shown(entry)}")
    say_confined(config, settings)
    kept = {secret.reference: secret.value for secret in secrets if not secret.placeholder}
    if handed := config.handed(values, kept):
        # A catalogue entry names them, not the person: it may ask for a key that is none of its business.
        note(f"  it is handed your {', '.join(handed)}")
    if config.auth == "oauth":
        note("  it asks you to log in, in your browser")
    if kept:
        note(f"  kept among your secrets, not in its entry: {', '.join(kept)}")
    wanted = [n for n in dict.fromkeys([*required, *config.references()]) if n not in values and n not in kept]
    if wanted:
        how = ", ".join(wanted) if asks else f"toolscout secret set {' '.join(wanted)}"
        note(f"  it needs values of yours: {how}")
    confirm("Add it?", yes)
    if asks:
        given = {n: ask(f"{n} (Enter: later)", hidden=required.get(n, True), default="") for n in wanted}
        kept |= {name: value for name, value in given.items() if value}
        wanted = [name for name in wanted if name not in kept]
    open_store(settings).update(kept)
    from toolscout.server.sandbox.package import forget

    others = [other for name, other in present.items() if name != server_id]
    for gone in (config, present.get(server_id, config)):
        # Added again, it is installed again; and what the replaced entry ran from is nobody's any more.
        forget(gone, others, settings.home)
    servers.add(config, overwrite=replace)
    # Whoever says --oauth has asked for the login.
    listed = list_added([server_id], settings, logins=True if oauth else None) if check else {}
    if listed.get(server_id, {}).get("login") and "auth" not in entry and not yes and sys.stdin.isatty():
        from toolscout.commands.logging_in import log_in

        if typer.confirm(f"{server_id} has a login in the browser. Log in now?", default=True, err=True):
            listed = log_in([server_id], settings)
    if as_json:
        emit({"added": server_id, "entry": entry, "to_set": wanted, "listed": listed.get(server_id)})
    elif listed:
        show_listed(listed)
    else:
        say(f"Added {server_id}.")
    exit_if_failed(listed)


def _entry(
    name: str,
    command: Sequence[str],
    url: str | None,
    transport: str | None,
    beside: Sequence[str],
    values: Sequence[str],
    settings: Settings,
    asks: bool,
) -> tuple[str, dict[str, Any], dict[str, bool]]:
    """Server id, entry and required variables for what the person named; of each variable whether it is secret.

    ``asks``: for what a person's own values go into and ``values`` has none for.
    """
    from toolscout.server.clients.redact import secret_name
    from toolscout.server.launch import catalogue_launch, from_here, npm_entry, pypi_entry

    registry, _, package = name.partition(":")
    if values and (url or command or (registry in ("npm", "pypi") and package)):
        raise BadInput("--arg is for a server of the catalog.", "Put other arguments behind --.")
    if url:
        if command:
            raise BadInput("Give a command or --url, not both.")
        kind = {"transport": transport} if transport else {}
        return name, {"url": url, **kind}, {}
    if registry in ("npm", "pypi") and package:
        plain = package.rpartition("@")[0] or package if registry == "npm" else package.split("==")[0].split("@")[0]
        with suppress(ToolscoutError):  # what the pack knows of it is told, but not needed
            if (box := open_pack(settings)) is not None and (known := box.server_of(f"{registry}:{plain}")) is not None:
                _say_facts(known)
        entry = npm_entry(package, command) if registry == "npm" else pypi_entry(package, command, extra=beside)
        return plain, entry, {}
    if command:
        return name, {"command": command[0], "args": list(command[1:])}, {}
    server = _known_server(name, settings)
    _say_facts(server)
    launch = catalogue_launch(server, known_values(settings))
    if asks:
        values = [*values, *map(ask, launch.placeholders[len(values) :])]
    plain_names = {v.name for v in server.install.env if not (v.secret or secret_name(v.name))}
    return (
        server.server_id,
        launch.filled(from_here(values)),
        {name: name not in plain_names for name in launch.required},
    )


def _say_facts(server: Server) -> None:
    note(fact_line(server))
    for said in filter(None, [server.homepage, warning_shown(server)]):
        note(f"  {said}")


def open_pack(settings: Settings) -> PackIndex | None:
    """The built-in catalog, or None where there is none that can be read."""
    from toolscout.index.encoder import make_encoder
    from toolscout.server.box import open_box

    return open_box(settings, make_encoder(settings), None)


def _known_server(name: str, settings: Settings) -> Server:
    """A server of the catalog or of the pack, by its id; by a name in plain words, a person chooses among a few.

    Raises NotFound where there is none, or several and nobody to choose.
    """
    from toolscout.index.catalogue import Catalogue

    hint = "Say what to run (toolscout add NAME -- COMMAND ARGS...), give --url, or npm:PACKAGE or pypi:PACKAGE."
    try:
        with Catalogue(settings.database_url) as catalogue:
            server = catalogue.get_server(name)
    except StorageError:
        server = None
    box = None if server is not None else open_pack(settings)
    if box is not None:
        tool = box.get_tool(name)
        server = box.get_server(tool.server_id if tool is not None else name)
        if server is None and (choices := box.servers_called(name)):
            return _chosen(name, choices)
    if server is None:
        near = [shlex.quote(one) for one in box.names_like(name)] if box is not None else []
        hint = f"Near it: {', '.join(near)} (toolscout add {near[0]}). {hint}" if near else hint
        raise NotFound(f"No server {name!r} is known.", hint)
    return server


def _chosen(name: str, choices: Sequence[Server]) -> Server:
    """The server that a person chooses; the only one there is. Raises NotFound where there is nobody to ask."""
    one = len(choices) == 1
    if one and sys.stdin.isatty():
        return choices[0]
    note(f"The one server for {name!r}:" if one else f"Servers for {name!r}, the most trusted first:")
    for number, choice in enumerate(choices, 1):
        note(f"  {number}. {fact_line(choice)}")
        if said := warning_shown(choice):
            note(f"     {said}")
    if not sys.stdin.isatty():
        raise NotFound(
            f"{name!r} is no id of a server." if one else f"{name!r} may mean several servers.",
            f"Name {'it' if one else 'one'} by its id: toolscout add {choices[0].server_id}",
            choices=[_choice(server) for server in choices],
        )
    number = 0
    while not 1 <= number <= len(choices):
        number = typer.prompt(f"Which one (1 to {len(choices)})", type=int, default=1, err=True)
    return choices[number - 1]


def _choice(server: Server) -> dict[str, Any]:
    from toolscout.server.launch import needs

    return {
        "server_id": server.server_id, "publisher": publisher_shown(server) or None, "official": server.official,
        "downloads": int(server.popularity or 0), "license": server.license, "needs": needs(server),
        "description": server.description,
    }  # fmt: skip


def fact_line(server: Server) -> str:
    """What a person goes by when choosing: id, publisher, use, license, what it takes, and what it is for."""
    from toolscout.server.launch import needs

    wanted = needs(server) or (["a key"] if server.state is ServerState.NEEDS_KEY else [])
    facts = [
        publisher_shown(server),
        f"{int(server.popularity):,} downloads a month" if server.popularity else "",
        age_shown(server),
        server.license or "",
        "hosted" if server.install.url else "",
        "asks you to log in" if server.install.auth == "oauth" else "",
        f"needs {', '.join(wanted)}" if wanted else "",
    ]
    said = ", ".join(fact for fact in facts if fact) or "nothing known of its publisher"
    return printable(f"{server.server_id}  ({said})  {server.description[:90]}".rstrip())


def _merge_options(entry: dict[str, Any], header: Sequence[str], env: Sequence[str], cwd: Path | None) -> None:
    remote = "url" in entry
    if (header and not remote) or ((env or cwd) and remote):
        raise BadInput("--header is for --url; --env and --cwd are for commands.")
    if header:
        entry["headers"] = {**entry.get("headers", {}), **pairs(header, "--header")}
    if env:
        entry["env"] = {**entry.get("env", {}), **pairs(env, "--env")}
    if cwd:
        entry["cwd"] = str(cwd.expanduser().absolute())


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """``["K=V", ...]`` as a mapping. Raises BadInput naming the option."""
    found: dict[str, str] = {}
    for text in texts:
        name, sep, value = text.partition("=")
        if not sep or not name.strip():
            raise BadInput(f"{option} takes NAME=VALUE, not {text!r}.")
        found[name.strip()] = value
    return found


def _add_starter(servers: Any, settings: Settings, *, yes: bool, check: bool, as_json: bool) -> None:
    from toolscout.server.starter import STARTERS, register_starter

    for starter in STARTERS:
        missing = starter.missing()
        note(f"{starter.name}: " + (f"left out, {missing}" if missing else starter.description))
    confirm("Add the starter set?", yes)
    names = register_starter(servers)
    listed = list_added(names, settings) if check else {}
    if as_json:
        emit({"added": names, "listed": listed})
    else:
        show_listed(listed)
    exit_if_failed(listed)


def remove(
    names: Annotated[list[str], typer.Argument(help="Names from `toolscout list`.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove servers: their configuration, and their tools from search.

    What the catalog knew before (from a crawl, say) it knows again: as a server that is not installed.
    """
    from toolscout.server.config import ServersFile
    from toolscout.server.upstreams.folder import forget_files

    settings = load_settings()
    servers = ServersFile(settings.servers_file)
    present = servers.load()
    unknown = [n for n in names if n not in present and n not in servers.problems]
    if unknown:
        raise NotFound(f"No server named {unknown[0]!r} is configured.", "See: toolscout list")
    confirm(f"Remove {', '.join(names)}?", yes)
    for name in names:
        servers.remove(name)
        forget_files(settings.home, name)
    _forget_installations(names, present, settings)

    kept: list[str] = []

    async def forget(engine: Engine) -> int:
        gone = 0
        for name in names:
            server = engine.catalogue.get_server(name)
            if server is not None and server.sources:
                wants = any(variable.required for variable in server.install.env)
                state = ServerState.NEEDS_KEY if wants else ServerState.NEEDS_INSTALL
                engine.catalogue.put_server(server.model_copy(update={"state": state}))
                kept.append(name)
            elif server is not None:  # else its tools were never listed
                gone += engine.catalogue.remove_server(name)
        await engine.reindex()
        return gone

    tools = with_engine(forget) if settings.index_dir.exists() or settings.database else 0
    if as_json:
        emit({"removed": names, "tools": tools} | ({"kept": kept} if kept else {}))
    else:
        for name in kept:
            note(f"{name} stays in the catalog, not installed; its tools can still be found")
        say(f"Removed {', '.join(names)} ({tools} tools).")


def _forget_installations(names: Sequence[str], present: Mapping[str, UpstreamConfig], settings: Settings) -> None:
    if (settings.home / "sandbox").is_dir():
        from toolscout.server.sandbox.package import forget

        for name in set(names) & set(present):
            forget(present[name], [other for n, other in present.items() if n not in names], settings.home)


def list_servers(as_json: AsJson = False) -> None:
    """List the configured servers, their state and their number of tools."""
    from toolscout.server.config import ServersFile

    settings = load_settings()
    servers = ServersFile(settings.servers_file)
    configured = servers.load()
    counts = tool_counts(settings) if configured else {}
    values = known_values(settings)
    rows = [_row(config, counts.get(name, {}), settings, values) for name, config in configured.items()]
    rows += [
        {"name": n, "state": "unavailable", "why": why, "tools": 0, "in_review": 0, "transport": "", "runs": ""}
        for n, why in servers.problems.items()
    ]
    if as_json:
        emit(rows)
        return
    if not rows:
        say("No server is configured." + (" The starter set comes with the first start." if _fresh(settings) else ""))
        say("Add some: toolscout import, toolscout add NAME -- COMMAND, or toolscout add starter.")
        return
    cells = [
        [r["name"], r["state"], str(r["tools"]), r["transport"], r["why"] or r["runs"]]
        for r in sorted(rows, key=lambda r: str(r["name"]))
    ]
    table(cells, ["name", "state", "tools", "by", "what"])
    waiting = sum(int(r["in_review"]) for r in rows)
    if waiting:
        note(f"{waiting} tools wait for your review: toolscout review")


def _fresh(settings: Settings) -> bool:
    return settings.starter and not settings.servers_file.exists()


def _row(
    config: UpstreamConfig, counts: Mapping[str, int], settings: Settings, values: Mapping[str, str]
) -> dict[str, Any]:
    from toolscout.server.launch import absent, shown
    from toolscout.server.upstreams.folder import last_failure
    from toolscout.server.upstreams.listing import public_url, without_secrets

    missing = config.missing(values)
    approved, review = counts.get("approved", 0), counts.get("pending", 0) + counts.get("changed", 0)
    state, why = "ready", ""
    if config.disabled:
        state, why = "unavailable", f"disabled: toolscout enable {config.name}"
    elif missing:
        state, why = "needs_key", f"toolscout secret set {' '.join(missing)}"
    elif config.command and absent(config, settings.sandbox):
        state, why = "unavailable", f"{config.command} is not on the PATH"
    elif (failure := last_failure(settings.home, config)) is not None:
        state, why = "failed", failure.shown()
    elif not counts:
        state, why = "unavailable", "its tools were never listed: toolscout refresh"
    elif review and not approved:
        state, why = "quarantined", "toolscout review"
    return {
        "name": config.name,
        "state": state,
        "why": why,
        "tools": approved,
        "in_review": review,
        "transport": config.transport.value,
        "runs": shown(
            {"url": public_url(config.url)}
            if config.url
            else {"command": config.command, "args": without_secrets(config.args)}
        ),
        "starter": bool(config.fields.get("starter")),
        "sandbox": policy.as_json() if (policy := config.policy(settings.sandbox)) is not None else False,
    }


def tool_counts(settings: Settings) -> dict[str, dict[str, int]]:
    """Tools by server and review. A SQLite catalog is read directly: importing its ORM would take a second."""
    question = "SELECT server_id, review, count(*) FROM tool GROUP BY server_id, review"
    rows: list[Any]
    if settings.database_url.startswith("sqlite:///"):
        import sqlite3

        path = Path(settings.database_url.removeprefix("sqlite:///"))
        if not path.is_file():
            return {}
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
            try:
                rows = connection.execute(question).fetchall()
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise StorageError(f"The catalog {path} cannot be read: {error}.", "Run: toolscout doctor") from None
    else:
        from toolscout.index.catalogue import Catalogue

        with Catalogue(settings.database_url) as catalogue:
            rows = [(t.server_id, t.review.value, 1) for t in catalogue.tools()]
    counts: dict[str, dict[str, int]] = {}
    for server_id, review, number in rows:
        per = counts.setdefault(str(server_id), {})
        per[str(review)] = per.get(str(review), 0) + int(number)
    return counts


def references_of(configured: Mapping[str, UpstreamConfig]) -> list[str]:
    """The names of the secrets that servers refer to."""
    from toolscout.server.secrecy.secrets import bare_names

    return bare_names(name for config in configured.values() for name in config.references())


def entry_diff(name: str, before: Mapping[str, Any], after: Mapping[str, Any], path: Path) -> str:
    """What changes in the file of the servers, without secrets."""
    from toolscout.server.clients.connect import Change
    from toolscout.server.clients.redact import Redactor

    found = [s for e in (before, after) for s in Redactor(values={}).clean(name, json.loads(json.dumps(e)))[1]]
    old, new = (json.dumps({name: entry}, indent=2, ensure_ascii=False).encode() for entry in (before, after))
    return Change(name, path, (), old, new, hidden=frozenset(secret.value for secret in found)).diff()
