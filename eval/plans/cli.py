"""``toolscout eval plan``: see docs/EVALUATION.md, Plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolscout.errors import BadInput


def plan(
    tools: Annotated[list[Path], typer.Option(help="Files of tools: the pool. Several may follow.")],
    calls: Annotated[
        list[Path], typer.Option(help="Files of requests whose gold is a graph of calls; several may follow.")
    ],
    answers: Annotated[
        Path | None,
        typer.Option(help="Score these plans, {id, calls: [{id, tool_id, arguments, depends_on}]} a line; no model."),
    ] = None,
    model: Annotated[str, typer.Option(help="Model: a name of `toolscout model list`, or the endpoint's.")] = "",
    model_url: Annotated[str, typer.Option(help="OpenAI-compatible endpoint instead of a local model.")] = "",
    candidates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tools searched for a request that brings no candidates of its own.",
            show_default="as suggest_call: 5, for several calls 12",
        ),
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, the result and every row to this folder.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only so many rows, the same ones every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the candidates' order, the rows of --limit, and the resamples.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Every plan goes here at once; a later run goes on. Default: beside --json or in --report."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Let the model plan requests that take several calls, or score given plans; report AST-DAG accuracy."""
    from toolscout.eval.cli import _say, _settings, _show
    from toolscout.eval.plans.measure import measure_plans, score_answers
    from toolscout.eval.plans.report import plan_report, plan_tables
    from toolscout.eval.provenance import write_result
    from toolscout.eval.work_file import work_place

    say = _say(quiet)
    if answers is not None:
        if model or model_url or work is not None:
            raise BadInput(
                "--answers are scored as they are: no model is asked.", "Leave out --model, --model-url and --work."
            )
        run = score_answers(tools, calls, answers, limit=limit, seed=seed, say=say)
    else:
        work = work_place(work, json_out, report)
        chosen = _settings(settings, model=model, model_url=model_url)
        run = measure_plans(tools, calls, settings=chosen, found=candidates, limit=limit, seed=seed, work=work, say=say)
    if json_out is not None:
        write_result(json_out, run.result)
    if report is not None:
        say(f"report: {plan_report(run, report)}")
    _show(quiet, plan_tables(run.result))
