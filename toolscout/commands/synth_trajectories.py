"""``synth trajectories``: executes the calls of rows through a real Toolscout and keeps what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.commands.options import RunFolder, Servers
from toolscout.commands.output import AsJson, emit, note, progress, say
from toolscout.commands.synthesis import (
    Cache,
    Calls,
    Concurrency,
    Endpoint,
    MaxCost,
    MaxTokens,
    Model,
    PriceIn,
    PriceOut,
    Ray,
    SecondEndpoint,
    SecondModel,
    SecondPriceIn,
    SecondPriceOut,
)
from toolscout.errors import BadInput, NotFound
from toolscout.eval.command import ManyFiles

if TYPE_CHECKING:
    from toolscout.records import Call, Server, Tool
    from toolscout.synth.trajectories.pipeline import Ran

app = typer.Typer()


@app.command("trajectories", cls=ManyFiles)
def trajectories(
    calls: Calls,
    out: RunFolder,
    home: Annotated[
        Path | None,
        typer.Option(help="Home folder of the Toolscout to call through: it is started there.", show_default=False),
    ] = None,
    url: Annotated[
        str,
        typer.Option(help="Or its URL, if it runs (http://host:8080/mcp). Needs --tools.", show_default=False),
    ] = "",
    tools: Annotated[
        list[Path] | None,
        typer.Option(help="Files of the calls' tools. Several may follow.", show_default="the home's catalog"),
    ] = None,
    servers: Servers = None,
    writes: Annotated[
        bool, typer.Option("--writes", help="Also make calls that may change something, or cannot be told.")
    ] = False,
    execute_only: Annotated[
        bool, typer.Option("--execute-only", help="Make the calls and end: no model is asked.")
    ] = False,
    again: Annotated[
        str,
        typer.Option(
            help="Make calls once more that failed for these root causes, by commas (session_error,api_error).",
            show_default="none",
        ),
    ] = "",
    endpoint: Endpoint = None,
    model: Model = None,
    second_endpoint: SecondEndpoint = None,
    second_model: SecondModel = None,
    call_timeout: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="Seconds that one call may take.", show_default="60")
    ] = None,
    calls_at_once: Annotated[
        int | None, typer.Option(min=1, help="Most rows executed at once.", show_default="4")
    ] = None,
    calls_a_server: Annotated[
        int | None, typer.Option(min=1, help="Most calls at once on one server.", show_default="2")
    ] = None,
    characters: Annotated[
        int | None, typer.Option(min=200, help="Longest response that is shown.", show_default="8000")
    ] = None,
    response: Annotated[
        float | None, typer.Option(min=0, max=10, help="Drop when responses are judged below this.", show_default="6")
    ] = None,
    answer: Annotated[
        float | None, typer.Option(min=0, max=10, help="Drop when the answer is judged below this.", show_default="6")
    ] = None,
    concurrency: Concurrency = None,
    ray: Ray = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    second_price_in: SecondPriceIn = None,
    second_price_out: SecondPriceOut = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Execute the calls of rows through invoke, and make trajectories of them: messages, responses, final answer.

    Rows may hold several calls with references to earlier results. A call that was executed is not executed twice; a
    run that was stopped goes on. Calls that may change something are left out unless --writes. The servers run as
    the home configures them: give it sandboxed ones.
    """
    from toolscout.commands.synth_bench import open_bench, read_tools
    from toolscout.jsonl import read_records
    from toolscout.synth.drafts import OpenCall, shown
    from toolscout.synth.settings import synth_settings
    from toolscout.synth.trajectories.caller import Caller, Target
    from toolscout.synth.trajectories.pipeline import make_trajectories

    settings = synth_settings(
        model_url=endpoint, model=model, second_url=second_endpoint, second_model=second_model,
        call_timeout=call_timeout, calls_at_once=calls_at_once, calls_a_server=calls_a_server,
        response_characters=characters, response_below=response, answer_below=answer, concurrency=concurrency,
        price_in=price_in, price_out=price_out, second_price_in=second_price_in, second_price_out=second_price_out,
        max_cost=max_cost, max_tokens=max_tokens,
    )  # fmt: skip
    if (home is None) == (not url):
        raise BadInput("Calls are made either over a home folder or a URL.", "Give --home FOLDER or --url URL.")
    if home is not None and not home.is_dir():
        raise NotFound(f"There is no folder {home}.", "Give the home of a Toolscout with --home.")
    rows: list[Call] = [call for path in calls for call in read_records(path, OpenCall)]
    if tools:
        pool, known, _ = read_tools(tools, servers or [])
    elif home is not None:
        pool, known = _catalogue(home, {g.tool_id for row in rows for g in row.gold})
    else:
        raise BadInput("With --url the tools' definitions have to be given.", "Name files of tools with --tools.")
    target = Target(home=home, url=url, token=settings.serve_token, log=out / "serve.log")
    causes = [name.strip() for name in again.split(",") if name.strip()]
    out.mkdir(parents=True, exist_ok=True)

    async def main(tick: Callable[[float, float | None], None]) -> Ran:
        opened = open_bench(
            shown(pool.values(), known),
            known,
            settings,
            out,
            cache=cache,
            encodes=False,
            asks=not execute_only,
            ray=ray,
        )
        async with opened as bench, Caller(target, settings.call_timeout) as caller:
            return await make_trajectories(
                rows, bench, caller, out, writes=writes, again=causes, tick=lambda _, done, total: tick(done, total)
            )

    with progress("Trajectories") as tick:
        ran = asyncio.run(main(tick))
    _tell(ran, out, as_json)


def _catalogue(home: Path, wanted: Iterable[str]) -> tuple[dict[str, Tool], dict[str, Server]]:
    """The wanted tools with their servers, as the home's catalog has them."""
    from toolscout.index.catalogue import Catalogue
    from toolscout.settings import load_settings

    found: dict[str, Tool] = {}
    known: dict[str, Server] = {}
    settings = load_settings().model_copy(update={"home": home.resolve()})
    with Catalogue(settings.database_url) as catalogue:
        for tool_id in sorted(wanted):
            tool = catalogue.get_tool(tool_id)
            if tool is None:
                continue
            found[tool_id] = tool
            if tool.server_id not in known and (server := catalogue.get_server(tool.server_id)) is not None:
                known[tool.server_id] = server
    if not found:
        raise BadInput(
            f"The catalog of {home} has none of the tools that the calls name.", "See: toolscout catalog stats"
        )
    return found, known


def _tell(ran: Ran, out: Path, as_json: bool) -> None:
    for remark in ran.report["remarks"]:
        note(remark)
    if as_json:
        emit(ran.report)
        return
    for step in ran.report["steps"]:
        dropped = ", ".join(f"{n} {why}" for why, n in step["dropped"].items())
        say(f"{step['step']:12} {step['inputs']:>7} -> {step['made']:<7} {dropped}".rstrip())
    executed = ran.report["executed"]
    say(f"{executed['calls']} calls, {executed['went_well']} went well.{_causes(executed['by_cause'].items())}")
    spent = ran.report["spent"]
    if spent["by_model"]:
        say(f"Spent {spent['prompt_tokens']} + {spent['completion_tokens']} tokens, {spent['price']:g}.")
    say(f"{len(ran.kept)} trajectories are in {out / 'trajectories.jsonl'}; all that was done is in {out}.")


def _causes(items: Iterable[tuple[str, int]]) -> str:
    shown = ", ".join(f"{n} {cause.replace('_', ' ')}" for cause, n in items)
    return f" Failed: {shown}." if shown else ""
