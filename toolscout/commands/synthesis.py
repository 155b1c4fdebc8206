"""``synth``: makes data from a catalog: calls, filters, splits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.commands.options import RunFolder, Servers, named_numbers
from toolscout.commands.output import AsJson, emit, note, progress, say
from toolscout.commands.synth_report import report as report_command
from toolscout.errors import BadInput
from toolscout.eval.command import ManyFiles

if TYPE_CHECKING:
    from toolscout.records import Call
    from toolscout.synth.pipeline import Result

app = typer.Typer(no_args_is_help=True, help="Make data: calls, filters, splits.")

Tools = Annotated[list[Path], typer.Option(help="Files of tools. Several may follow.")]
Calls = Annotated[list[Path], typer.Option(help="Files of calls. Several may follow.")]
Endpoint = Annotated[
    str | None,
    typer.Option(help="OpenAI-compatible endpoint that writes (http://host:8000/v1).", show_default="your settings'"),
]
Model = Annotated[str | None, typer.Option(help="Its model.", show_default="the first one it lists")]
SecondEndpoint = Annotated[
    str | None, typer.Option(help="Endpoint of the model that judges.", show_default="--endpoint")
]
SecondModel = Annotated[str | None, typer.Option(help="The model that judges.", show_default="--model")]
Cache = Annotated[
    Path | None, typer.Option(help="File of stored answers, to share between folders.", show_default="in --out")
]
Encoder = Annotated[
    str | None, typer.Option(help="Encoder of the resemblance filter, as TOOLSCOUT_ENCODER.", show_default="default")
]
Concurrency = Annotated[
    int | None,
    typer.Option(min=1, help="Most requests under way at once; with --ray, on each machine.", show_default="8"),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Ask the endpoint from every machine of a Ray cluster: HOST:PORT, auto, or local (a new one, here).",
        show_default="(no)",
    ),
]
MaxCost = Annotated[float | None, typer.Option(min=0, help="Cost ceiling of the folder; 0: none.", show_default="0")]
PriceIn = Annotated[float | None, typer.Option(min=0, help="Price of a million prompt tokens.", show_default="0")]
PriceOut = Annotated[float | None, typer.Option(min=0, help="Price of a million answer tokens.", show_default="0")]
SecondPriceIn = Annotated[
    float | None, typer.Option(min=0, help="The same of the model that judges.", show_default="0")
]
SecondPriceOut = Annotated[
    float | None, typer.Option(min=0, help="The same of the model that judges.", show_default="0")
]
Resembles = Annotated[
    float | None,
    typer.Option(min=-1, max=1, help="Drop above this cosine with the description.", show_default="0.8"),
]
Ungrounded = Annotated[
    int | None, typer.Option(min=0, help="Drop with more values that the request does not give.", show_default="0")
]
Duplicate = Annotated[
    float | None, typer.Option(min=0.01, max=1, help="Drop near copies from this similarity on.", show_default="0.8")
]
JudgeBelow = Annotated[
    float | None, typer.Option(min=0, max=10, help="Drop what is judged below this.", show_default="6")
]
MaxTokens = Annotated[int | None, typer.Option(min=16, help="Longest answer, in tokens.", show_default="1024")]
Filters = Annotated[
    str,
    typer.Option(
        help="Of schema, grounded, resembles, duplicates, invocation, judge, by commas; or none.", show_default="all"
    ),
]


@app.callback()
def synth() -> None:
    """Make data: calls, filters, splits."""


app.command("report", cls=ManyFiles)(report_command)


@app.command("calls", cls=ManyFiles)
def calls(
    tools: Tools,
    out: RunFolder,
    servers: Servers = None,
    endpoint: Endpoint = None,
    model: Model = None,
    second_endpoint: SecondEndpoint = None,
    second_model: SecondModel = None,
    limit: Annotated[int, typer.Option(min=0, help="Only so many tools, drawn.", show_default="all")] = 0,
    instructions: Annotated[
        int | None, typer.Option(min=1, max=20, help="Instructions a tool.", show_default="5")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=0, max=5, help="Evolutions of each.", show_default="2")] = None,
    keep: Annotated[str | None, typer.Option(help="Which levels go on: ends, all, last.", show_default="ends")] = None,
    languages: Annotated[str, typer.Option(help="Shares to translate, as de=0.03,zh=0.03.", show_default="none")] = "",
    environment: Annotated[
        Path | None, typer.Option(help="JSON of local files, directories, URLs for slots.", show_default="made up")
    ] = None,
    names: Annotated[bool, typer.Option("--allow-names", help="Let instructions name server and tool.")] = False,
    filters: Filters = "",
    resembles: Resembles = None,
    ungrounded: Ungrounded = None,
    duplicate: Duplicate = None,
    judge: JudgeBelow = None,
    encoder: Encoder = None,
    concurrency: Concurrency = None,
    ray: Ray = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    second_price_in: SecondPriceIn = None,
    second_price_out: SecondPriceOut = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    seed: Annotated[int | None, typer.Option(help="Draws directions, languages, tools.", show_default="0")] = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Make instruction-call pairs from tools: generate, fill slots, evolve, translate, call, filter.

    Every step leaves a file in the folder; a run that was stopped goes on, and no answer is paid for twice. Keys are
    settings (TOOLSCOUT_SYNTH_MODEL_KEY), as is everything else: see docs/SYNTHESIS.md.
    """
    from toolscout.commands.synth_bench import open_bench, read_tools
    from toolscout.synth.drafts import shown, subjects
    from toolscout.synth.environment import read_environment
    from toolscout.synth.pipeline import make_calls
    from toolscout.synth.settings import synth_settings

    shares = named_numbers(languages, "shares of languages", "--languages de=0.03,zh=0.03") if languages else None
    settings = synth_settings(
        model_url=endpoint, model=model, second_url=second_endpoint, second_model=second_model,
        instructions=instructions, depth=depth, keep_levels=keep, languages=shares, allow_names=names or None,
        resembles_above=resembles, ungrounded_above=ungrounded, duplicate_from=duplicate, judge_below=judge,
        concurrency=concurrency, price_in=price_in, price_out=price_out, second_price_in=second_price_in,
        second_price_out=second_price_out, max_cost=max_cost, max_tokens=max_tokens, seed=seed,
    )  # fmt: skip
    wanted = _filters(filters)
    local = read_environment(environment)
    pool, known, _ = read_tools(tools, servers or [])
    found, left = subjects(pool.values(), known, limit)
    if not found:
        raise BadInput("There is no tool to write for.", "Only approved tools are taken: see `toolscout review`.")

    async def main(tick: Callable[[float, float | None], None]) -> Result:
        opened = open_bench(
            shown(pool.values(), known),
            known,
            settings,
            out,
            cache=cache,
            encoder=encoder,
            encodes="resembles" in wanted,
            ray=ray,
        )
        async with opened as bench:
            bench.environment = local
            return await make_calls(
                found, bench, out, filters=wanted, left_out=left, tick=lambda _, done, total: tick(done, total)
            )

    with progress("Synthesis") as tick:
        result = asyncio.run(main(tick))
    _tell(result, out / "calls.jsonl", as_json)


@app.command("filter", cls=ManyFiles)
def filter_command(
    calls: Calls,
    tools: Tools,
    out: RunFolder,
    servers: Servers = None,
    filters: Filters = "",
    endpoint: Endpoint = None,
    model: Model = None,
    second_endpoint: SecondEndpoint = None,
    second_model: SecondModel = None,
    resembles: Resembles = None,
    ungrounded: Ungrounded = None,
    duplicate: Duplicate = None,
    judge: JudgeBelow = None,
    encoder: Encoder = None,
    concurrency: Concurrency = None,
    ray: Ray = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    second_price_in: SecondPriceIn = None,
    second_price_out: SecondPriceOut = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Put calls from anywhere through the filters; what passes stands in kept.jsonl, as it came.

    Without a model, leave out its filters: --filters schema,grounded,resembles,duplicates.
    """
    from toolscout.commands.synth_bench import open_bench, read_tools
    from toolscout.synth.drafts import shown
    from toolscout.synth.pipeline import WITH_MODEL, filter_calls
    from toolscout.synth.settings import synth_settings

    settings = synth_settings(
        model_url=endpoint, model=model, second_url=second_endpoint, second_model=second_model,
        resembles_above=resembles, ungrounded_above=ungrounded, duplicate_from=duplicate, judge_below=judge,
        concurrency=concurrency, price_in=price_in, price_out=price_out, second_price_in=second_price_in,
        second_price_out=second_price_out, max_cost=max_cost, max_tokens=max_tokens,
    )  # fmt: skip
    wanted = _filters(filters)
    asks = any(name in WITH_MODEL for name in wanted)
    pool, known, _ = read_tools(tools, servers or [])
    rows = _some_calls(calls)

    async def main(tick: Callable[[float, float | None], None]) -> Result:
        opened = open_bench(
            shown(pool.values(), known),
            known,
            settings,
            out,
            cache=cache,
            encoder=encoder,
            encodes="resembles" in wanted,
            asks=asks,
            ray=ray,
        )
        async with opened as bench:
            return await filter_calls(rows, bench, out, filters=wanted, tick=lambda _, done, total: tick(done, total))

    with progress("Filters") as tick:
        result = asyncio.run(main(tick))
    _tell(result, out / "kept.jsonl", as_json)


@app.command("split", cls=ManyFiles)
def split(
    calls: Calls,
    tools: Tools,
    out: Annotated[Path, typer.Option(help="Folder for one file a split, and report.json.")],
    servers: Servers = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Further test rows that training must not show. Several may follow.", show_default=False),
    ] = None,
    ratio_servers: Annotated[float, typer.Option(min=1, help="Seen servers to one unseen.")] = 12,
    ratio_tools: Annotated[float, typer.Option(min=1, help="Tools of seen servers to one unseen.")] = 11,
    ratio_samples: Annotated[float, typer.Option(min=1, help="Training rows to one test row of a seen tool.")] = 10,
    near: Annotated[float, typer.Option(min=0.1, max=1, help="Requests as similar as this are nearly equal.")] = 0.8,
    salt: Annotated[str, typer.Option(help="Another salt gives another drawing.")] = "",
    stated: Annotated[
        bool, typer.Option("--stated/--no-stated", help="Keep the split that rows of tools state.")
    ] = True,
    remove: Annotated[
        bool, typer.Option("--remove/--no-remove", help="Hold training rows out that ask what a test row asks.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Split calls by hash into train, seen, unseen_tool and unseen_server, and report contamination.

    A row never moves when the data grows. Requests for a tool that is defined like an unseen one are held out.
    """
    from toolscout.commands.synth_bench import read_tools
    from toolscout.files import write_json
    from toolscout.jsonl import write_records
    from toolscout.synth.contamination import contamination
    from toolscout.synth.split import (
        HELD_OUT,
        SPLITS,
        TRAIN,
        Ratios,
        place_tools,
        split_calls,
        split_report,
        twin_servers,
    )

    pool, known, given = read_tools(tools, servers or [])
    rows, others = _some_calls(calls), _read_calls(against or [])
    ratios = Ratios(ratio_servers, ratio_tools, ratio_samples, salt)
    splits = place_tools(pool.values(), given if stated else None, ratios)
    parts = split_calls(rows, splits)
    tested = [c for name in SPLITS if name not in (TRAIN, HELD_OUT) for c in parts[name]]
    found, asked = contamination(parts[TRAIN], [*tested, *others], pool, near, splits.places)
    gone: list[Call] = []
    if remove:
        gone = [c.model_copy(update={"split": HELD_OUT}) for n, c in enumerate(parts[TRAIN]) if n in asked]
        parts[TRAIN] = [c for n, c in enumerate(parts[TRAIN]) if n not in asked]
        parts[HELD_OUT] = [*parts[HELD_OUT], *gone]
    report = {
        **split_report(splits, parts, pool, known),
        "twin_servers": [list(pair) for pair in twin_servers(splits, pool)],
        "contamination": {**found, "removed_from_train": len(gone)},
    }
    for name in SPLITS:
        write_records(out / f"{name}.jsonl", parts[name])
    write_json(out / "report.json", report)
    if as_json:
        emit(report)
        return
    for name in SPLITS:
        say(f"{name:14} {len(parts[name])}")
    for what in ("same_request", "near_request", "unseen_tool_shown"):
        say(f"contamination: {what.replace('_', ' ')}: {found[what]['rows']} test rows")
    say(f"The splits and the report are in {out}.")


def _filters(text: str) -> list[str]:
    from toolscout.synth.pipeline import FILTERS

    if not text.strip():
        return list(FILTERS)
    found = [] if text.strip() == "none" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in found if name not in FILTERS]
    if unknown:
        raise BadInput(f"There is no filter {unknown[0]!r}.", f"Filters are {', '.join(FILTERS)}, or none.")
    return found


def _read_calls(paths: Sequence[Path]) -> list[Call]:
    from toolscout.jsonl import read_records
    from toolscout.synth.drafts import OpenCall

    return [call for path in paths for call in read_records(path, OpenCall)]


def _some_calls(paths: Sequence[Path]) -> list[Call]:
    """Raises BadInput where no file holds a row."""
    if not (found := _read_calls(paths)):
        raise BadInput("The calls files hold no rows.", "Give at least one file of calls with --calls.")
    return found


def _tell(result: Result, path: Path, as_json: bool) -> None:
    for remark in result.report["remarks"]:
        note(remark)
    for why, count in (result.report.get("left_out") or {}).items():
        if count:
            note(f"left out, {why}: {count}")
    if as_json:
        emit(result.report)
        return
    for step in result.report["steps"]:
        dropped = ", ".join(f"{n} {why}" for why, n in step["dropped"].items())
        say(f"{step['step']:12} {step['inputs']:>7} -> {step['made']:<7} {dropped}".rstrip())
    spent = result.report["spent"]
    if spent["by_model"]:
        tokens = f"{spent['prompt_tokens']} + {spent['completion_tokens']} tokens"
        stored = result.report["answers_of_this_run"]["stored"]
        say(f"Spent {tokens}, {spent['price']:g}; {stored} answers were at hand already.")
    say(f"{len(result.calls)} calls are in {path}; all that was done is in {path.parent}.")
