"""``toolscout eval apibank``: see docs/EVALUATION.md, API-Bank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from toolscout.errors import BadInput


def apibank(
    tools: Annotated[list[Path], typer.Option(help="Files of the dialogues' tools. Several may follow.")],
    calls: Annotated[list[Path], typer.Option(help="Files of turns, ids DIALOGUE_NUMBER; several may follow.")],
    servers: Annotated[list[Path] | None, typer.Option(help="Files of the tools' servers, if there are any.")] = None,
    extra_tools: Annotated[
        list[Path] | None, typer.Option(help="Files of more tools: the dialogues' are searched among these as well.")
    ] = None,
    requests: Annotated[
        Path | None, typer.Option(help="Structured {server, tool} requests of the turns, as one more form.")
    ] = None,
    domains: Annotated[
        Path | None, typer.Option(help='JSON object {"tool id": "domain"}. Default: ours of API-Bank, else the server.')
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, a plot and every turn to this folder.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only so many dialogues, the same every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the dialogues of --limit.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Every turn goes here at once; a later run goes on. Default: beside --json or in --report."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keep embeddings here for later runs. Default: beside --json or in --report.")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Encoder: default, a folder, st:MODEL or openai:MODEL.")] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Search for the tool of every turn of a dialogue, over its domain and the full collection (MCP-Zero, API-Bank)."""
    from toolscout.eval.apibank.measure import DialogueOptions, measure_apibank
    from toolscout.eval.apibank.report import apibank_report, apibank_tables
    from toolscout.eval.cli import _say, _settings, _show
    from toolscout.eval.provenance import write_result
    from toolscout.eval.retrieval.measure import RetrievalFiles
    from toolscout.eval.work_file import work_place

    say = _say(quiet)
    given = None if domains is None else _object(domains)
    run = measure_apibank(
        RetrievalFiles(tools, calls, servers or []),
        DialogueOptions(extra_tools or [], given, requests, limit, seed),
        settings=_settings(settings, encoder=encoder),
        cache=work_place(cache, json_out, report, "vectors"),
        work=work_place(work, json_out, report),
        say=say,
    )
    if json_out is not None:
        write_result(json_out, run.result)
    if report is not None:
        say(f"report: {apibank_report(run, report)}")
    _show(quiet, apibank_tables(run.result))


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}.", 'Give a JSON object {"tool id": "domain"}.') from None
    if not isinstance(value, dict):
        raise BadInput(f"{path} is no JSON object.", 'Give a JSON object {"tool id": "domain"}.')
    return value
