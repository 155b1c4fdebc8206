"""What `toolscout eval calls` does: one run, a comparison of settings, random tools; files, tables and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from toolscout.errors import BadInput
from toolscout.eval.calls.compare import ASPECTS, SIZES, compare_calls, variants_of
from toolscout.eval.calls.measure import CallsRun, measure_calls
from toolscout.eval.calls.plots import compare_plot
from toolscout.eval.plots import NO_PLOTS
from toolscout.eval.provenance import write_result
from toolscout.eval.report import Table, calls_report, calls_tables, compare_table, random_table
from toolscout.eval.rows import read_calls, read_tools
from toolscout.records import JsonObject
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.eval.calls.exemplars import Exemplars
    from toolscout.server.calling.suggestion import Decoding

CANDIDATES = 10
"""Tools offered for each request where nothing else is said."""


@dataclass(frozen=True)
class CallsOptions:
    """The options of the command, as given."""

    tools: list[Path]
    calls: list[Path]
    settings: Settings
    servers: list[Path] = field(default_factory=list)
    candidates: int | None = None
    limit: int | None = None
    seed: int = 0
    work: Path | None = None
    decoding: str = "repair"
    exemplars: list[Path] = field(default_factory=list)
    any_tool: bool = False
    compare: str = ""
    sizes: str | None = None
    random_tools: int = 0
    without_gold: str = ""
    json_out: Path | None = None
    report: Path | None = None


def measure(options: CallsOptions, say: Callable[[str], None]) -> list[Table]:
    """Measure, write what is to be written, and return the tables. Raises BadInput for options that say nothing."""
    decoding, sizes = _decoding(options.decoding), _sizes(options.sizes)
    if options.compare and options.compare not in ASPECTS:
        raise BadInput(f"--compare {options.compare} cannot be compared.", f"Known: {', '.join(ASPECTS)}.")
    if options.without_gold not in ("", "random", "siblings"):
        raise BadInput(f"--without-gold {options.without_gold} is unknown.", "Known: random, siblings.")
    if options.without_gold and options.compare:
        raise BadInput("--without-gold and --compare do not go together.", "Leave one of them out.")
    if options.sizes is not None and options.compare != "candidates":
        raise BadInput("--sizes is for --compare candidates.", "Give --candidates N for one size.")
    if options.any_tool and not options.exemplars:
        raise BadInput("--any-tool says which --exemplars are taken.", "Give files of calls with --exemplars.")
    if options.compare == "candidates" and options.candidates is not None and options.candidates not in sizes:
        raise BadInput(f"--candidates {options.candidates} is none of the --sizes.", "Leave it out, or add it to them.")
    count = options.candidates or CANDIDATES
    exemplars = _exemplars(options)
    result: JsonObject = {}
    extra: list[Table] = []
    plot = None
    if options.compare:
        variants = variants_of(options.compare, candidates=count, sizes=sizes, decoding=decoding, exemplars=exemplars)
        comparison, runs = compare_calls(
            options.tools, options.calls, options.compare, variants, servers=options.servers, settings=options.settings,
            limit=options.limit, seed=options.seed, work=options.work, say=say,
        )  # fmt: skip
        run = runs[_main(options, list(runs))]
        result, extra = {**run.result, "comparison": comparison}, [compare_table(comparison)]
        plot = _plot(comparison, options, say)
    else:
        run = measure_calls(
            options.tools, options.calls, servers=options.servers, settings=options.settings,
            candidates=count, limit=options.limit, seed=options.seed, work=options.work,
            decoding=decoding, exemplars=exemplars, without_gold=options.without_gold, say=say,
        )  # fmt: skip
        result = dict(run.result)
    if options.random_tools:
        result["random_tools"] = _random(options, say)
        extra.append(random_table(result["random_tools"]))
    _write(run, result, extra, plot, options, say)
    return [*calls_tables(run.result), *extra]


def _write(
    run: CallsRun,
    result: JsonObject,
    extra: list[Table],
    plot: str | None,
    options: CallsOptions,
    say: Callable[[str], None],
) -> None:
    if options.json_out is not None:
        write_result(options.json_out, result)
    if options.report is not None:
        say(f"report: {calls_report(run, options.report, extra, result, plot)}")


def _plot(comparison: JsonObject, options: CallsOptions, say: Callable[[str], None]) -> str | None:
    if options.report is not None:
        path = options.report / f"{comparison['by']}.png"
    elif options.json_out is not None:
        path = options.json_out.with_suffix(f".{comparison['by']}.png")
    else:
        return None
    drawn = compare_plot(comparison, path)
    if drawn is None:
        say(NO_PLOTS)
    return drawn


def _main(options: CallsOptions, names: list[str]) -> str:
    """The variant that is the product's own, whose result comes first."""
    own = {"candidates": str(options.candidates or CANDIDATES), "decoding": options.decoding, "exemplars": "on"}[
        options.compare
    ]
    return own if own in names else names[0]


def _random(options: CallsOptions, say: Callable[[str], None]) -> JsonObject:
    from toolscout.eval.calls.random import random_calls

    work = options.work.with_name(options.work.name + ".random.jsonl") if options.work is not None else None
    tools = list(read_tools(options.tools).values())
    rows = read_calls(options.calls)
    return random_calls(
        tools, rows, options.random_tools, settings=options.settings, seed=options.seed, work=work, say=say
    )


def _exemplars(options: CallsOptions) -> Exemplars | None:
    if not options.exemplars:
        return None
    from toolscout.eval.calls.exemplars import read_exemplars
    from toolscout.index.encoder import make_encoder

    return read_exemplars(options.exemplars, make_encoder(options.settings), any_tool=options.any_tool)


def _decoding(text: str) -> Decoding:
    from toolscout.server.calling.suggestion import Decoding

    if text not in get_args(Decoding):
        raise BadInput(f"--decoding {text} is unknown.", f"Known: {', '.join(get_args(Decoding))}.")
    return cast(Decoding, text)


def _sizes(text: str | None) -> list[int]:
    if text is None:
        return list(SIZES)
    try:
        sizes = list(dict.fromkeys(int(part) for part in text.split(",") if part.strip()))
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise BadInput(f"--sizes {text} holds no numbers of candidates.", "For example: --sizes 1,5,10")
    return sizes
