"""``toolscout eval diversity``: see docs/EVALUATION.md, Diversity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def diversity(
    calls: Annotated[
        list[str],
        typer.Option(metavar="NAME=FILE", help="Files of requests, by the name of their set. Several may follow."),
    ],
    near: Annotated[
        float, typer.Option(min=0, max=1, help="Likeness of wordings from which two requests are near copies.")
    ] = 0.8,
    encoder: Annotated[str, typer.Option(help="Encoder: default, a folder, st:MODEL or openai:MODEL.")] = "",
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page with plots, the result and every drawn request to this folder.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Compare how various sets of requests are: distance, near copies, lengths, tools, of 1,000 drawn from each."""
    from toolscout.eval.cli import _say, _settings, _show
    from toolscout.eval.diversity.measure import measure_diversity, parse_sets
    from toolscout.eval.diversity.report import diversity_report, diversity_tables
    from toolscout.eval.provenance import write_result
    from toolscout.index.encoder import make_encoder

    say = _say(quiet)
    sets = parse_sets(calls)
    chosen = _settings(settings, encoder=encoder)
    run = measure_diversity(
        sets, make_encoder(chosen), encoder_name=chosen.encoder, near_from=near, plots=report is not None, say=say
    )
    if json_out is not None:
        write_result(json_out, run.result)
    if report is not None:
        say(f"report: {diversity_report(run, report)}")
    _show(quiet, diversity_tables(run.result))
