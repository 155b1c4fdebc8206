"""``synth plans``: requests that take several calls, with their calls as a graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.commands.options import RunFolder, Servers
from toolscout.commands.output import AsJson, emit, note, progress, say
from toolscout.commands.synthesis import (
    Cache,
    Concurrency,
    Duplicate,
    Encoder,
    Endpoint,
    MaxCost,
    MaxTokens,
    Model,
    PriceIn,
    PriceOut,
    Ray,
    SecondEndpoint,
    SecondModel,
    SecondPriceIn,
    SecondPriceOut,
    Tools,
    Ungrounded,
)
from toolscout.errors import BadInput
from toolscout.eval.command import ManyFiles

if TYPE_CHECKING:
    from toolscout.synth.pipeline import Result

app = typer.Typer()


@app.command("plans", cls=ManyFiles)
def plans(
    tools: Tools,
    out: RunFolder,
    servers: Servers = None,
    endpoint: Endpoint = None,
    model: Model = None,
    second_endpoint: SecondEndpoint = None,
    second_model: SecondModel = None,
    hands: Annotated[
        int | None, typer.Option("--plans", min=0, help="Hands of tools dealt in each category.", show_default="20")
    ] = None,
    across: Annotated[
        int | None, typer.Option(min=0, help="Combinations of categories to ask for.", show_default="20")
    ] = None,
    smallest: Annotated[
        int | None, typer.Option(min=2, max=10, help="Least tools of a hand.", show_default="2")
    ] = None,
    largest: Annotated[int | None, typer.Option(min=2, max=10, help="Most tools of a hand.", show_default="10")] = None,
    near: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of hands dealt server by server.", show_default="0.5")
    ] = None,
    fillings: Annotated[
        int | None, typer.Option(min=1, max=50, help="Combinations of slot values a template.", show_default="3")
    ] = None,
    names: Annotated[bool, typer.Option("--allow-names", help="Let requests name servers and tools.")] = False,
    filters: Annotated[
        str,
        typer.Option(help="Of rules, duplicates, reasonable, semantic, by commas; or none.", show_default="all"),
    ] = "",
    ungrounded: Ungrounded = None,
    duplicate: Duplicate = None,
    reasonable: Annotated[
        float | None,
        typer.Option(min=0, max=10, help="Drop requests judged less reasonable than this.", show_default="6"),
    ] = None,
    matches: Annotated[
        float | None,
        typer.Option(min=0, max=10, help="Drop plans whose calls are judged below this.", show_default="6"),
    ] = None,
    encoder: Encoder = None,
    concurrency: Concurrency = None,
    ray: Ray = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    second_price_in: SecondPriceIn = None,
    second_price_out: SecondPriceOut = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    seed: Annotated[int | None, typer.Option(help="Deals tools, fills slots.", show_default="0")] = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Make requests that take several calls: combine, sample, template, fill, rewrite, check.

    Every step leaves a file in the folder; a run that was stopped goes on, and no answer is paid for twice. Codes of
    airports, countries, currencies, languages and stocks come from packages: pip install "toolscout[synth]".
    """
    from toolscout.commands.synth_bench import open_bench, read_tools
    from toolscout.synth.drafts import shown, subjects
    from toolscout.synth.plans.codes import absent
    from toolscout.synth.plans.pipeline import FILTERS, make_plans
    from toolscout.synth.settings import synth_settings

    settings = synth_settings(
        model_url=endpoint, model=model, second_url=second_endpoint, second_model=second_model,
        plans=hands, plans_across=across, plan_smallest=smallest, plan_largest=largest, plan_near=near,
        plan_fillings=fillings, allow_names=names or None, ungrounded_above=ungrounded, duplicate_from=duplicate,
        plan_reasonable_below=reasonable, plan_matches_below=matches, concurrency=concurrency, price_in=price_in,
        price_out=price_out, second_price_in=second_price_in, second_price_out=second_price_out, max_cost=max_cost,
        max_tokens=max_tokens, seed=seed,
    )  # fmt: skip
    wanted = [n.strip() for n in filters.split(",") if n.strip()] or list(FILTERS)
    wanted = [] if wanted == ["none"] else wanted
    pool, known, _ = read_tools(tools, servers or [])
    found, left = subjects(pool.values(), known)
    if len(found) < 2:
        raise BadInput(
            "There are not two tools to write for.", "Only approved tools are taken: see `toolscout review`."
        )
    for package, types in absent().items():
        note(
            f"{package} is not installed: no slot can be of type {', '.join(types)}. "
            'To have them: pip install "toolscout[synth]".'
        )

    async def main(tick: Callable[[float, float | None], None]) -> Result:
        opened = open_bench(shown(pool.values(), known), known, settings, out, cache=cache, encoder=encoder, ray=ray)
        async with opened as bench:
            return await make_plans(
                found, bench, out, filters=wanted, left_out=left, tick=lambda _, done, total: tick(done, total)
            )

    with progress("Plans") as tick:
        result = asyncio.run(main(tick))
    for remark in result.report["remarks"]:
        note(remark)
    if as_json:
        emit(result.report)
        return
    for step in result.report["steps"]:
        dropped = ", ".join(f"{n} {why}" for why, n in step["dropped"].items())
        say(f"{step['step']:12} {step['inputs']:>7} -> {step['made']:<7} {dropped}".rstrip())
    spent = result.report["spent"]
    tokens = f"{spent['prompt_tokens']} + {spent['completion_tokens']} tokens"
    stored = result.report["answers_of_this_run"]["stored"]
    say(f"Spent {tokens}, {spent['price']:g}; {stored} answers were at hand already.")
    say(f"{len(result.calls)} plans are in {out / 'plans.jsonl'}; all that was done is in {out}.")
