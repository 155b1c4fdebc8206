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
        typer.Option(help="Every row goes here at once, and a later run goes on from it. Default: beside --json."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keep embeddings here for later runs. Default: beside --json.")
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
    from toolscout.eval.retrieval.measure import RetrievalFiles
    from toolscout.files import write_json

    say = _say(quiet)
    run = measure_needle(
        RetrievalFiles(tools, calls, servers or []),
        NeedleOptions(sizes, positions, requests, limit, seed, context, tokenizer),
        settings=_settings(settings, encoder=encoder),
        cache=cache or beside(json_out, "vectors"),
        work=work or beside(json_out, "rows.jsonl"),
        say=say,
    )
    if json_out is not None:
        write_json(json_out, run.result)
    if report is not None:
        say(f"report: {needle_report(run, report)}")
    _show(quiet, needle_tables(run.result))


def beside(json_out: Path | None, ending: str) -> Path | None:
    """``OUT.json.ENDING`` for ``OUT.json``."""
    return None if json_out is None else json_out.with_name(f"{json_out.name}.{ending}")
