"""``toolscout eval strategies``: see docs/EVALUATION.md, Strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolscout.errors import BadInput


def strategies(
    tools: Annotated[list[Path], typer.Option(help="Files of tools: the pool. Several may follow.")],
    calls: Annotated[list[Path], typer.Option(help="Files of requests with their gold calls; several may follow.")],
    servers: Annotated[list[Path] | None, typer.Option(help="Files of the tools' servers, if there are any.")] = None,
    strategies: Annotated[
        str, typer.Option(help="Which tools go into the prompt; of blank, keyword, retrieved, commas between.")
    ] = "blank,keyword,retrieved",
    sizes: Annotated[
        str, typer.Option(help="Sizes of the pool and 'all', commas between; paper: those of eval needle.")
    ] = "10,100,1000,all",
    found: Annotated[int, typer.Option(min=1, max=50, help="Tools that retrieved puts into the prompt.")] = 5,
    tokens_only: Annotated[
        bool, typer.Option("--tokens-only", help="No model: prompts alone, their tokens, and is the right tool there.")
    ] = False,
    context: Annotated[
        int, typer.Option(min=0, help="Tokens that the model takes; 0: the local model's, or what the endpoint says.")
    ] = 0,
    model: Annotated[str, typer.Option(help="Model: a name of `toolscout model list`, or the endpoint's.")] = "",
    model_url: Annotated[str, typer.Option(help="OpenAI-compatible endpoint instead of a local model.")] = "",
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, a plot and every prompt to this folder.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only so many rows, the same ones every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws pools, their order, and the rows of --limit.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Every answer goes here at once; a later run goes on. Default: beside --json or in --report."
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keep embeddings here for later runs. Default: beside --json or in --report.")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Encoder: default, a folder, st:MODEL or openai:MODEL.")] = "",
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json to count prompts with.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Give a model all tools, those that share a word, or those found: accuracy, tokens, what fits (RAG-MCP)."""
    from toolscout.eval.cli import _say, _settings, _show
    from toolscout.eval.provenance import write_result
    from toolscout.eval.retrieval.measure import RetrievalFiles
    from toolscout.eval.strategies.measure import StrategyOptions, measure_strategies
    from toolscout.eval.strategies.report import strategy_report, strategy_tables
    from toolscout.eval.work_file import work_place

    if tokens_only and (model or model_url):
        raise BadInput("--tokens-only asks no model.", "Leave out --model and --model-url, or --tokens-only.")
    say = _say(quiet)
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    run = measure_strategies(
        RetrievalFiles(tools, calls, servers or []),
        StrategyOptions(sizes, names, found, tokens_only, context, limit, seed, tokenizer),
        settings=_settings(settings, encoder=encoder, model=model, model_url=model_url),
        cache=work_place(cache, json_out, report, "vectors"),
        work=work_place(work, json_out, report),
        say=say,
    )
    if json_out is not None:
        write_result(json_out, run.result)
    if report is not None:
        say(f"report: {strategy_report(run, report)}")
    _show(quiet, strategy_tables(run.result))
