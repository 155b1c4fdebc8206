"""``toolscout eval agent``: see docs/EVALUATION.md, Agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolscout.errors import BadInput


def agent(
    model: Annotated[str, typer.Option(help="Name of the acting model, as its endpoint knows it.")],
    model_url: Annotated[str, typer.Option(help="OpenAI-compatible endpoint of the acting model.")],
    arms: Annotated[
        str, typer.Option(help="Arms to run, the one to compare with first: all, find, bootstrap (commas between).")
    ] = "all,find,bootstrap",
    tasks: Annotated[
        Path | None, typer.Option(help="A file of tasks instead of the repository's own set.", show_default=False)
    ] = None,
    gaia: Annotated[
        Path | None, typer.Option(help="GAIA's metadata.jsonl instead, its files beside it.", show_default=False)
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option(
            help="An mcp.json: run these servers, as they are configured, instead of the set's own in a sandbox.",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each task in each arm.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only so many tasks, the same ones every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the tasks of --limit.")] = 0,
    turns: Annotated[int, typer.Option(min=1, help="Most requests to the model for one task.")] = 20,
    seconds: Annotated[float, typer.Option(min=1, help="Most seconds for one task.")] = 300.0,
    answers: Annotated[
        str,
        typer.Option(
            help="How it ends: text (a line ANSWER:), or tool (each turn is a call, the last one gives the answer: "
            "endpoints then make small models write valid calls)."
        ),
    ] = "text",
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of one turn.", show_default="the endpoint's")
    ] = None,
    price_call: Annotated[float, typer.Option(help="Price of a tool call.")] = 1.0,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PRICE", help="Another price for the calls of a tool (its id) or a server."),
    ] = None,
    price_prompt: Annotated[float, typer.Option(help="Price of 1,000 tokens read.")] = 0.0,
    price_completion: Annotated[float, typer.Option(help="Price of 1,000 tokens written.")] = 0.0,
    caller: Annotated[
        str, typer.Option(help="Model of suggest_call in the third arm. Default: the installed one.")
    ] = "",
    caller_url: Annotated[str, typer.Option(help="Endpoint of the model of suggest_call.")] = "",
    sandbox: Annotated[str, typer.Option(help="Where the set's own servers run: bubblewrap, or none.")] = "bubblewrap",
    install: Annotated[
        Path | None, typer.Option(help="Folder to install them in, with its caches kept.", show_default=False)
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page, the result and every trial to this folder.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Every trial goes here at once; a later run goes on. Default: beside --json or in --report."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE, of the Toolscout that is measured.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Let an agent do tasks with all tools, with find_tools, and with a suggested first call; check what it left.

    The acting model's key is taken from TOOLSCOUT_AGENT_KEY, else from OPENAI_API_KEY.
    """
    import os

    from toolscout.eval.agent.loop import ANSWERS, Mind
    from toolscout.eval.agent.report import agent_report, agent_tables
    from toolscout.eval.agent.run import AgentOptions, measure_agent
    from toolscout.eval.agent.score import Prices
    from toolscout.eval.agent.tasks import OWN_TASKS
    from toolscout.eval.cli import _say, _set, _settings, _show
    from toolscout.eval.provenance import write_result
    from toolscout.eval.served import DECIDED
    from toolscout.eval.work_file import work_place

    if tasks is not None and gaia is not None:
        raise BadInput("--tasks and --gaia exclude each other.", "Run one after the other.")
    _set(settings, DECIDED)
    if answers not in ANSWERS:
        raise BadInput(f"There is no way to answer {answers!r}.", f"Ways are {', '.join(ANSWERS)}.")
    key = os.environ.get("TOOLSCOUT_AGENT_KEY") or os.environ.get("OPENAI_API_KEY") or ""
    prices = Prices.parse(price_call, price or [], price_prompt, price_completion)
    run = measure_agent(
        AgentOptions(
            mind=Mind(model_url, model, key, turns, seconds, answers=answers, max_tokens=max_tokens),
            tasks=tasks or OWN_TASKS,
            gaia=gaia,
            servers=servers,
            arms=[arm.strip() for arm in arms.split(",") if arm.strip()],
            trials=trials,
            limit=limit,
            seed=seed,
            sandbox=sandbox,
            install=install,
        ),
        settings=_settings(settings, model=caller, model_url=caller_url),
        prices=prices,
        work=work_place(work, json_out, report),
        say=_say(quiet),
    )
    if json_out is not None:
        write_result(json_out, run.result)
    if report is not None:
        _say(quiet)(f"report: {agent_report(run, report)}")
    _show(quiet, agent_tables(run.result))
