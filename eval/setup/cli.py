"""``toolscout eval setup``: see docs/EVALUATION.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolscout.errors import BadInput, NotFound


def setup(
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
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json to count with.", show_default=False)] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the result to this file.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page to share and the result to this folder.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Look at your own servers: context saved, tools that are confusable, badly described or never found, and marks.

    Nothing is asked of a model or the network, and nothing in the home folder is changed.
    """
    from toolscout.eval.cli import _say, _show
    from toolscout.eval.provenance import write_result
    from toolscout.eval.setup.measure import measure_setup
    from toolscout.eval.setup.page import setup_report
    from toolscout.eval.setup.source import from_files, from_home, home_settings
    from toolscout.eval.setup.tables import setup_tables
    from toolscout.eval.setup.text import HOW, NOTHING
    from toolscout.eval.tokens import make_counter
    from toolscout.settings import load_settings

    if tools and (home or everything):
        raise BadInput("--tools and --home exclude each other.", "Look at files, or at a home folder.")
    if servers and not tools:
        raise BadInput("--servers needs --tools.", "Name the files of the servers' tools as well.")
    settings = home_settings(load_settings(), home)
    installed = from_files(tools, servers or ()) if tools else from_home(settings, everything=everything)
    if not installed.tools:
        for note in installed.notes:
            _say(quiet)(note)
        raise NotFound(NOTHING, HOW)
    result = measure_setup(installed, make_counter(tokenizer), settings=settings, say=_say(quiet))
    if json_out is not None:
        write_result(json_out, result)
    if report is not None:
        _say(quiet)(f"report: {setup_report(result, report)}")
    _show(quiet, setup_tables(result))
