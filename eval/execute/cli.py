"""``toolscout eval execute``: see docs/EVALUATION.md, Execution."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.errors import BadInput, NotFound

if TYPE_CHECKING:
    from toolscout.eval.execute.measure import ExecuteRun, Lookup
    from toolscout.settings import Settings


def execute(
    calls: Annotated[
        list[Path],
        typer.Option(help="Files of requests with their gold calls, and `expect` where an outcome can be checked."),
    ],
    home: Annotated[
        Path | None,
        typer.Option(help="Home folder of the Toolscout to call through: it is started there.", show_default=False),
    ] = None,
    url: Annotated[
        str, typer.Option(help="Or its URL, if it runs (http://host:8080/mcp). Needs --tools.", show_default=False)
    ] = "",
    tools: Annotated[
        list[Path] | None,
        typer.Option(help="Files of the tools. Several may follow.", show_default="the home's catalog"),
    ] = None,
    servers: Annotated[
        list[Path] | None, typer.Option(help="Files of their servers. Several may follow.", show_default=False)
    ] = None,
    gold: Annotated[
        bool, typer.Option("--gold", help="Make the gold calls: an upper bound, and which servers work.")
    ] = False,
    answers: Annotated[
        Path | None,
        typer.Option(
            help="Make these calls, {id, calls: [{id, tool_id, arguments, depends_on}]} a line.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Else the calls of suggest_call, by this model: of `toolscout model list`, or the endpoint's."
        ),
    ] = "",
    model_url: Annotated[str, typer.Option(help="OpenAI-compatible endpoint instead of a local model.")] = "",
    trials: Annotated[int, typer.Option(min=1, max=100, help="Trials of each row: K of Pass@K.")] = 5,
    judge_url: Annotated[
        str,
        typer.Option(
            help="OpenAI-compatible endpoint that judges rows without `expect`, and those with it to compare."
        ),
    ] = "",
    judge_model: Annotated[str, typer.Option(help="Its model.", show_default="the first it lists")] = "",
    writes: Annotated[
        bool, typer.Option("--writes", help="Also make calls that may change something, or cannot be told.")
    ] = False,
    call_timeout: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="Seconds that one call may take.", show_default="60")
    ] = None,
    calls_at_once: Annotated[int | None, typer.Option(min=1, help="Most rows at once.", show_default="4")] = None,
    calls_a_server: Annotated[
        int | None, typer.Option(min=1, help="Most calls at once on one server.", show_default="2")
    ] = None,
    again: Annotated[
        str,
        typer.Option(
            help="Make calls once more that failed for these root causes, by commas (session_error,api_error).",
            show_default="none",
        ),
    ] = "",
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page, the result and every trial to this folder.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only so many rows, the same ones every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the rows of --limit.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of calls and responses; a later run goes on. Default: beside --json or in --report."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE, of the Toolscout that is started.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Make calls for real, several trials a request, and judge what came of it: Pass@K, success of calls, root causes.

    The servers run as the home configures them: give it sandboxed ones. Calls that may change something are left out
    unless --writes.
    """
    from toolscout.eval.cli import _say, _set, _settings, _show
    from toolscout.eval.execute.calls import FromAnswers, FromGold, FromModel, Source
    from toolscout.eval.execute.judge import open_judge
    from toolscout.eval.execute.measure import Executing, measurable, measure_execution, read_rows
    from toolscout.eval.execute.report import execute_report, execute_tables
    from toolscout.eval.provenance import plain, write_result
    from toolscout.eval.served import who_serves
    from toolscout.eval.work_file import work_place
    from toolscout.records import JsonObject
    from toolscout.synth.settings import synth_settings
    from toolscout.synth.trajectories.caller import Caller, Target

    if (home is None) == (not url):
        raise BadInput("Calls are made either over a home folder or a URL.", "Give --home FOLDER or --url URL.")
    if home is not None and not home.is_dir():
        raise NotFound(f"There is no folder {home}.", "Give the home of a Toolscout with --home.")
    if gold and answers is not None:
        raise BadInput("--gold and --answers exclude each other.", "Make the gold calls, or those of a file.")
    if (model or model_url) and (gold or answers is not None):
        raise BadInput("Given calls need no model.", "Leave out --model and --model-url, or --gold and --answers.")
    if url and (model or model_url or settings):
        raise BadInput(
            "A Toolscout that runs has its own model and settings.", "Leave out --model, --model-url, --set."
        )
    if judge_model and not judge_url:
        raise BadInput("--judge-model needs --judge-url.", "Name the endpoint that judges.")
    say = _say(quiet)
    chosen = _settings(settings, model=model, model_url=model_url)
    given = _set(settings, ("home", "install_offers"))
    env = {f"TOOLSCOUT_{name.upper()}": value for name, value in given.items()}
    env |= {f"TOOLSCOUT_{name}": v for name, v in (("MODEL", model), ("MODEL_URL", model_url)) if v}
    making = synth_settings(call_timeout=call_timeout, calls_at_once=calls_at_once, calls_a_server=calls_a_server)
    how = Executing(making, trials, writes, [name.strip() for name in again.split(",") if name.strip()])
    lookup = _from_files(tools, servers or []) if tools else _from_home(home, chosen)
    asked = read_rows(calls, limit, seed)
    rows, left = measurable(asked, lookup, gold=gold, writes=writes)
    for why, n in left.items():
        say(f"{n} rows left out: {why}")

    async def main(folder: Path) -> ExecuteRun:
        target = Target(home=home, url=url, token=making.serve_token, log=folder / "serve.log", env=env)
        async with AsyncExitStack() as opened:
            caller = await opened.enter_async_context(Caller(target, making.call_timeout))
            source: Source
            if gold:
                source = FromGold()
            elif answers is not None:
                source = FromAnswers.read(answers, rows, trials)
            else:
                # Over a URL nobody knows which model it has, or where that runs.
                about: JsonObject = {"at": plain(url)}
                if home is not None:
                    about |= who_serves(chosen.model_copy(update={"home": home.resolve()}))
                # An endpoint's answers may differ from time to time.
                greedy = not chosen.model_temperature
                source = FromModel(caller, about, once=greedy and not url and not chosen.model_url)
            judge = None
            if judge_url:
                judge = await opened.enter_async_context(open_judge(judge_url, judge_model, making, folder))
            return await measure_execution(
                rows, source, caller, lookup, how, folder, judge=judge, left_out=left, say=say
            )

    work = work_place(work, json_out, report, "work")
    if work is None:
        with tempfile.TemporaryDirectory(prefix="toolscout-execute-") as folder:
            run = asyncio.run(main(Path(folder)))
    else:
        work.mkdir(parents=True, exist_ok=True)
        run = asyncio.run(main(work))
    from toolscout.server.upstreams.probe import FILE, probe_counts

    run.result["probes"] = probe_counts(home / FILE) if home is not None else None
    for warning in run.warnings[len(left) :]:
        say(warning)
    if json_out is not None:
        write_result(json_out, run.result)
    if report is not None:
        say(f"report: {execute_report(run, report)}")
    _show(quiet, execute_tables(run.result))


def _from_files(tools: list[Path], servers: list[Path]) -> Lookup:
    from toolscout.eval.rows import read_servers, read_tools

    pool, known = read_tools(tools), read_servers(servers)
    return lambda ids: ({i: pool[i] for i in sorted(ids) if i in pool}, known)


def _from_home(home: Path | None, settings: Settings) -> Lookup:
    """What the home's catalog has; it is opened anew for each look, since the Toolscout under test writes to it."""
    from toolscout.index.catalogue import Catalogue
    from toolscout.records import Server, Tool

    if home is None:
        raise BadInput("With --url the tools' definitions have to be given.", "Name files of tools with --tools.")
    address = settings.model_copy(update={"home": home.resolve()}).database_url

    def lookup(ids: Iterable[str]) -> tuple[dict[str, Tool], dict[str, Server]]:
        with Catalogue(address) as catalogue:
            tools = {i: tool for i in sorted(ids) if (tool := catalogue.get_tool(i)) is not None}
            names = {tool.server_id for tool in tools.values()}
            return tools, {n: server for n in sorted(names) if (server := catalogue.get_server(n)) is not None}

    return lookup
