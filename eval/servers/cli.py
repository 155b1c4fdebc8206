"""``toolscout eval servers``: see docs/EVALUATION.md, Servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolscout.errors import BadInput, NotFound


def servers(
    home: Annotated[
        Path | None, typer.Option(help="Home folder to look at; it is only read.", show_default="TOOLSCOUT_HOME")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Also servers of the catalog that are not configured.")
    ] = False,
    tools: Annotated[
        list[Path] | None,
        typer.Option(help="Files of tools, instead of a home. Several may follow.", show_default=False),
    ] = None,
    servers: Annotated[
        list[Path] | None, typer.Option(help="Files of their servers. Several may follow.", show_default=False)
    ] = None,
    executed: Annotated[
        list[Path] | None,
        typer.Option(
            help="How calls went: what `eval execute --json` wrote. Several may follow.",
            show_default="the home's call log",
        ),
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help='Groups of servers, {"name": [ids]}.', show_default="found by the encoder")
    ] = None,
    cosine: Annotated[float, typer.Option(min=0, max=1, help="Likeness of tools that do the same.")] = 0.75,
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the smaller server's tools that has a like one in the other.")
    ] = 0.5,
    health: Annotated[
        Path | None, typer.Option(help="Write each server's health here, for TOOLSCOUT_HEALTH.", show_default=False)
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json to count with.", show_default=False)] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the result to this file.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page and the result to this folder.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Compare servers that do the same: success and time of calls, texts, features, tokens, popularity.

    No model is asked, no server is started, and nothing in the home folder is changed.
    """
    from toolscout.eval.cli import _say, _show
    from toolscout.eval.provenance import write_result
    from toolscout.eval.servers.facts import from_executed, from_log, healths
    from toolscout.eval.servers.groups import read_groups
    from toolscout.eval.servers.measure import measure_servers
    from toolscout.eval.servers.report import servers_report, servers_tables
    from toolscout.eval.setup.source import from_files, from_home, home_settings
    from toolscout.eval.setup.text import HOW, NOTHING
    from toolscout.eval.tokens import make_counter
    from toolscout.index.health import write_health
    from toolscout.settings import load_settings

    if tools and (home or everything):
        raise BadInput("--tools and --home exclude each other.", "Look at files, or at a home folder.")
    if servers and not tools:
        raise BadInput("--servers needs --tools.", "Name the files of the servers' tools as well.")
    if health is not None and tools and not executed:
        raise BadInput("Files hold no calls, so there is no health to write.", "Give --executed FILE.")
    settings = home_settings(load_settings(), home)
    installed = from_files(tools, servers or ()) if tools else from_home(settings, everything=everything)
    say = _say(quiet)
    if not installed.tools:
        for note in installed.notes:
            say(note)
        raise NotFound(NOTHING, HOW)
    server_of = {tool.tool_id: tool.server_id for tool in installed.tools}
    evidence = from_executed(executed) if executed else from_log(installed.log, server_of)
    if health is not None and healths(evidence)[1] is None:
        raise BadInput("No server was called, so there is no health to write.", "Give --executed FILE.")
    strangers = sorted(set(evidence) - set(server_of.values()))
    if executed and strangers:
        if len(strangers) == len(evidence):
            raise BadInput(
                f"None of the servers that were executed is here; the first is {strangers[0]}.",
                "Check that --executed belongs to this home, or to these files.",
            )
        say(f"{len(strangers)} servers that were executed are not here and left out, the first is {strangers[0]}.")
        evidence = {name: one for name, one in evidence.items() if name not in strangers}
    given = read_groups(groups, dict.fromkeys(server_of.values())) if groups is not None else None
    result, found, mean = measure_servers(
        installed, evidence, make_counter(tokenizer), settings=settings, given=given, cosine=cosine, overlap=overlap,
        say=say,
    )  # fmt: skip
    if health is not None and mean is not None:
        write_health(health, found, mean)
    if json_out is not None:
        write_result(json_out, result)
    if report is not None:
        say(f"report: {servers_report(result, report)}")
    _show(quiet, servers_tables(result))
