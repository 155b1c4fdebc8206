"""``toolscout eval needle``: see docs/EVALUATION.md, Needle in a haystack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def needle(
    tools: Annotated[list[Path], typer.Option(help="Files of tools: the haystack. Several may follow.")],
    calls: Annotated[
        list[Path], typer.Option(help="Files of requests; each one's gold tool is a needle. Several may follow.")
    ],
    servers: Annotated[list[Path] | None, typer.Option(help="Files of the tools' servers, if there are any.")] = None,
    requests: Annotated[
        Path | None, typer.Option(help="Structured {server, tool} requests of the rows: both forms are measured.")
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="Sizes of the pool and 'all', commas between; paper: 26 sizes and all.")
    ] = "paper",
    positions: Annotated[int, typer.Option(min=1, help="Places of the needle, evenly from first to last.")] = 11,
    context: Annotated[
        int, typer.Option(min=1, help="Tokens of a prompt that the whole pool is laid into, for comparison.")
    ] = 128_000,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, plots and every row to this folder.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only so many rows, the same ones every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the haystacks, and the rows of --limit.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Every row goes here at once; a later run goes on. Default: beside --json or in --report."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keep embeddings here for later runs. Default: beside --json or in --report.")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Encoder: default, a folder, st:MODEL or openai:MODEL.")] = "",
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json to count the definitions with.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Hide each row's tool in pools of growing size, search for it, report where it comes: RAG-MCP and MCP-Zero."""
    from toolscout.eval.cli import _say, _settings, _show
    from toolscout.eval.needle.measure import NeedleOptions, measure_needle
    from toolscout.eval.needle.report import needle_report, needle_tables
    from toolscout.eval.provenance import write_result
    from toolscout.eval.retrieval.measure import RetrievalFiles
    from toolscout.eval.work_file import work_place

    say = _say(quiet)
    run = measure_needle(
        RetrievalFiles(tools, calls, servers or []),
        NeedleOptions(sizes, positions, requests, limit, seed, context, tokenizer),
        settings=_settings(settings, encoder=encoder),
        cache=work_place(cache, json_out, report, "vectors"),
        work=work_place(work, json_out, report),
        say=say,
    )
    if json_out is not None:
        write_result(json_out, run.result)
    if report is not None:
        say(f"report: {needle_report(run, report)}")
    _show(quiet, needle_tables(run.result))
