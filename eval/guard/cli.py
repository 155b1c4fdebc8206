"""``toolscout eval guard``: see docs/EVALUATION.md, Guard, and docs/GUARD.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toolscout.errors import BadInput
from toolscout.records import JsonObject


def guard(
    attacks: Annotated[
        list[Path],
        typer.Option(help="Files of poisoned tools, as in eval/data/attacks.jsonl or eval/data/guard. Repeatable."),
    ],
    tools: Annotated[
        list[Path] | None, typer.Option(help="Files of honest tools; several may follow.", show_default=False)
    ] = None,
    servers: Annotated[
        list[Path] | None, typer.Option(help="Files of their servers; several may follow.", show_default=False)
    ] = None,
    honest: Annotated[
        list[Path] | None,
        typer.Option(help="Files of honest tools that look like poison, as in eval/data/honest_blind.jsonl."),
    ] = None,
    calls: Annotated[
        list[Path] | None,
        typer.Option(help="Files of requests: also measure attacks on the ranking of --tools.", show_default=False),
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="With --calls: keep embeddings here for later runs.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page with plots, the result, misses and alarms to this folder.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Scan poisoned and honest tools, report detection, false alarms and time; with --calls also ranking attacks."""
    from toolscout.eval.cli import _say, _settings, _show
    from toolscout.eval.guard.measure import measure_guard, read_attacks, told_apart
    from toolscout.eval.guard.report import guard_report, guard_tables
    from toolscout.eval.provenance import write_result

    say = _say(quiet)
    rows = [row for path in attacks for row in read_attacks(path)]
    poisoned = [row for row in rows if row.level]
    if not poisoned:
        raise BadInput(f"{attacks[0]} holds no poisoned tools.", "See eval/data/README.md.")
    if calls and not tools:
        raise BadInput("Without --tools there is no ranking to attack.", "Give the requests' tools with --tools.")
    if cache is not None and not calls:
        raise BadInput("--cache keeps embeddings, and only --calls needs any.", "Leave it out, or give --calls.")
    if servers and not tools:
        raise BadInput("--servers needs --tools.", "Name the files of the servers' tools as well.")
    tricky = {name: read_attacks(path) for name, path in told_apart(honest or []).items()}
    if among := [row for row in rows if not row.level]:
        tricky["honest rows among --attacks"] = among
    ranking = _ranking(poisoned, tools or [], servers or [], calls, cache, _settings(None), say) if calls else None
    result = measure_guard(poisoned, tools or [], servers or [], honest=tricky, say=say)
    if ranking is not None:
        result["ranking"] = ranking
    if json_out is not None:
        write_result(json_out, result)
    if report is not None:
        say(f"report: {guard_report(result, report)}")
    _show(quiet, guard_tables(result))


def _ranking(
    poisoned: Any,
    tools: list[Path],
    servers: list[Path],
    calls: list[Path],
    cache: Path | None,
    settings: Any,
    say: Any,
) -> JsonObject:
    import tempfile

    from toolscout.eval.guard.ranking import measure_ranking
    from toolscout.eval.vector_cache import CachingEncoder
    from toolscout.index.encoder import Encoder, make_encoder

    encoder: Encoder = make_encoder(settings)
    if cache is not None:
        encoder = CachingEncoder(encoder, cache)
    with tempfile.TemporaryDirectory() as folder:
        own = settings.model_copy(update={"home": Path(folder), "database": "", "starter": False})
        return measure_ranking(poisoned, tools, servers, calls, settings=own, encoder=encoder, say=say)
