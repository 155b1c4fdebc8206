"""``toolscout eval guard``: see docs/GUARD.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toolscout.records import JsonObject


def guard(
    attacks: Annotated[Path, typer.Option(help="Poisoned tools, as in eval/data/attacks.jsonl.")],
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
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Scan poisoned and honest tools, report detection, false alarms and time; with --calls also ranking attacks."""
    from toolscout.eval.cli import _say, _settings, _show
    from toolscout.eval.guard.measure import measure_guard, read_attacks
    from toolscout.files import write_json

    say = _say(quiet)
    poisoned = read_attacks(attacks)
    tricky = {path.name: read_attacks(path) for path in honest or []}
    result = measure_guard(poisoned, tools or [], servers or [], honest=tricky, say=say)
    if calls:
        result["ranking"] = _ranking(poisoned, tools or [], servers or [], calls, cache, _settings(None), say)
    if json_out is not None:
        write_json(json_out, result)
    _show(quiet, tables(result))


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


def tables(result: JsonObject) -> list[Any]:
    """The result as tables for the terminal."""
    from toolscout.eval.report import Table

    rows = [[part, str(d["n"]), str(d["held_back"]), _percent(d["rate"])] for part, d in result["detection"].items()]
    shown = [Table("Poisoned tools", ["part", "tools", "held back", "rate"], rows)]
    kinds = result["detection"]["all"]["by_kind"] if "all" in result["detection"] else {}
    shown.append(
        Table(
            "By kind", ["kind", "tools", "held back"], [[k, str(v["n"]), str(v["held_back"])] for k, v in kinds.items()]
        )
    )
    for name, parts in result.get("tricky", {}).items():
        counts = [[part, str(c["n"]), str(c["held_back"]), _percent(c["rate"])] for part, c in parts.items()]
        shown.append(Table(f"Honest, but tricky: {name}", ["part", "tools", "held back", "rate"], counts))
    alarms = [
        [f"{name} ({half})", str(c["n"]), str(c["held_back"]), _percent(c["rate"])]
        for name, halves in result["alarms"].items()
        for half, c in halves.items()
    ]
    if alarms:
        shown.append(Table("Honest tools", ["file", "tools", "held back", "rate"], alarms))
        ms = result["ms_per_tool"]
        text = [[str(ms["n"]), str(ms["p50"]), str(ms["mean"]), str(ms["p99"]), str(ms["most"])]]
        shown.append(Table("CPU milliseconds a tool", ["tools", "median", "mean", "p99", "most"], text))
    if "ranking" in result:
        families = [
            [name, *(str(f[k]) for k in ("attackers", "held_back")), *(_percent(f[k]) for k in _SHARES)]
            for name, f in result["ranking"]["families"].items()
        ]
        head = ["family", "attackers", "held back", "in first five", "with guard", "gold", "gold with guard"]
        shown.append(Table("Attacks on the ranking", head, families))
    return shown


_SHARES = ("before", "after", "gold_before", "gold_after")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
