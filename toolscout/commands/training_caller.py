"""``train caller-rows`` and ``train caller``: the call generator from data to adapter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from toolscout.commands.options import (
    Minutes,
    Pool,
    RunFolder,
    Servers,
    StopAt,
    Threads,
    TrainingCalls,
    card_command,
    named_numbers,
)
from toolscout.commands.output import AsJson, emit, note, progress, say
from toolscout.errors import BadInput
from toolscout.eval.command import ManyFiles
from toolscout.prompt import Style

app = typer.Typer()

STYLES: tuple[Style, ...] = ("full", "compact")


@app.command("caller-rows", cls=ManyFiles)
def caller_rows(
    calls: TrainingCalls,
    tools: Pool,
    out: Annotated[Path, typer.Option(help="File of rows to write (.jsonl or .jsonl.gz).")],
    servers: Servers = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option(help="Requests to measure with: they and their unseen tools stay out.", show_default=False),
    ] = None,
    unanswerable: Annotated[
        list[Path] | None, typer.Option(help="Requests that no tool serves (gold empty).", show_default=False)
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often each request is shown, among other candidates.")] = 1,
    sizes: Annotated[
        str, typer.Option(help="Shares of candidate counts, as 5=1,10=2.", show_default="1 to 20, mostly 5 to 10")
    ] = "",
    branches: Annotated[int, typer.Option(min=1, help="Most rows over the same candidates.")] = 12,
    hard: Annotated[float, typer.Option(min=0, max=1, help="Share of groups with siblings and near misses.")] = 0.4,
    none: Annotated[float, typer.Option(min=0, max=0.9, help="Share of rows that no candidate serves.")] = 0.12,
    missing: Annotated[float, typer.Option(min=0, max=0.5, help="Share of rows without a required value.")] = 0.04,
    exemplars: Annotated[float, typer.Option(min=0, max=1, help="Share of groups with worked examples.")] = 0.1,
    styles: Annotated[str, typer.Option(help="Shares of renderings: compact, full.")] = "compact=1",
    budget: Annotated[int, typer.Option(min=1500, help="Most characters of a prompt.")] = 4000,
    seed: Annotated[int, typer.Option(help="Draws candidates, order and kinds.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make the call generator's training rows from requests and tools; the same rows for the same seed.

    Refuses files that leak: a dev request, or a tool that dev calls unseen, among the training requests.
    """
    from collections import Counter

    from toolscout.finetune.leakage import check_leakage, hold_out
    from toolscout.finetune.pairs import read_calls, read_pool
    from toolscout.jsonl import write_records
    from toolscout.synth.call_rows import SIZES, CallRowOptions, build_call_rows
    from toolscout.synth.tool_pool import ToolPool

    asked, held = read_calls(calls), read_calls(dev or [])
    strangers = read_calls(unanswerable or [])
    check_leakage([*asked, *strangers], held)
    pool = hold_out(read_pool(tools, servers or []), held)
    options = CallRowOptions(
        sizes=_sizes(sizes) if sizes else SIZES,
        branches=branches,
        hard=hard,
        none=none,
        missing=missing,
        exemplars=exemplars,
        styles=_styles(styles),
        budget=budget,
        epochs=epochs,
        seed=seed,
    )
    shown = ToolPool((pool.tools[t] for t in pool.shown()), pool.servers)
    rows, left = build_call_rows(asked, shown, strangers, options)
    write_records(out, rows)
    kinds = Counter(r.kind for r in rows)
    counts = {
        "rows": len(rows),
        "groups": len({r.group for r in rows}),
        "kinds": dict(kinds),
        "candidates": dict(sorted(Counter(len(r.tools) for r in rows).items())),
        "tools_shown": len({t for r in rows for t in r.tools}),
        "tools_held_out": len(pool.held_out),
        "left_out": dict(left),
    }
    if as_json:
        emit(counts)
        return
    say(f"{counts['rows']} rows in {counts['groups']} groups, in {out}.")
    for kind, number in sorted(kinds.items()):
        say(f"  {kind} {number}")


@app.command("caller", cls=ManyFiles)
def caller(
    rows: Annotated[Path, typer.Option(help="File of `toolscout train caller-rows`.")],
    base: Annotated[Path, typer.Option(help="Folder of the base model, or its GGUF file.")],
    out: RunFolder,
    preset: Annotated[
        str, typer.Option(help="Settings: qwen3-4b (MCP-Flow's), qwen2.5-coder-0.5b, smollm2-135m.")
    ] = "qwen3-4b",
    rank: Annotated[int | None, typer.Option(min=1, help="Rank of the adapter.", show_default="preset")] = None,
    alpha: Annotated[int | None, typer.Option(min=1, help="LoRA alpha.", show_default="preset")] = None,
    dropout: Annotated[float | None, typer.Option(min=0, max=0.9, help="LoRA dropout.", show_default="preset")] = None,
    targets: Annotated[str | None, typer.Option(help="Modules with an adapter.", show_default="all-linear")] = None,
    rate: Annotated[float | None, typer.Option(min=0, help="Highest learning rate.", show_default="preset")] = None,
    schedule: Annotated[str | None, typer.Option(help="Learning rate schedule.", show_default="cosine")] = None,
    warmup: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of the steps that warm up.", show_default="0.1")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Packs in a pass.", show_default="preset")] = None,
    accumulate: Annotated[int | None, typer.Option(min=1, help="Passes in a step.", show_default="preset")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=128, help="Longest pack; longer rows are left out.", show_default="preset")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(min=0, help="AdamW's weight decay.", show_default="0")] = None,
    precision: Annotated[str, typer.Option(help="auto (what is faster here), bfloat16 or float32.")] = "auto",
    share: Annotated[
        bool | None,
        typer.Option("--share/--no-share", help="Compute a group's shared prompt once.", show_default="preset"),
    ] = None,
    steps: Annotated[int, typer.Option(min=0, help="Stop learning after so many steps.", show_default="all rows")] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Only the first rows.", show_default="all")] = 0,
    seed: Annotated[int, typer.Option(help="Draws the adapter's first weights.")] = 0,
    save_steps: Annotated[int, typer.Option(min=1, help="A checkpoint every so many steps.")] = 25,
    log_steps: Annotated[int, typer.Option(min=0, help="Report every so many steps.", show_default="a few")] = 0,
    stop_at: StopAt = 0,
    minutes: Minutes = 0.0,
    threads: Threads = 0,
    rl: Annotated[bool, typer.Option("--rl", help="Go on from an adapter by reinforcement (GRPO).")] = False,
    adapter: Annotated[
        Path | None,
        typer.Option(help="Adapter folder, or .gguf adapter, to go on from (--rl needs one).", show_default=False),
    ] = None,
    tools: Annotated[
        list[Path] | None,
        typer.Option(help="--rl: files of the tools in the rows. Several may follow.", show_default=False),
    ] = None,
    group: Annotated[int | None, typer.Option(min=2, help="--rl: answers to a prompt.", show_default="preset")] = None,
    prompts: Annotated[
        int | None,
        typer.Option(min=1, help="--rl: prompts in a step; then --batch is answers in a pass.", show_default="preset"),
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0.01, help="--rl: of sampling.", show_default="1")] = None,
    max_prompt: Annotated[
        int | None, typer.Option(min=16, help="--rl: longest prompt, in tokens.", show_default="preset")
    ] = None,
    max_completion: Annotated[
        int | None, typer.Option(min=4, help="--rl: longest answer, in tokens.", show_default="preset")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="--rl: dr_grpo, grpo, bnpo or dapo.", show_default="dr_grpo")] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="--rl: divide advantages by the spread of the group or batch, or none.", show_default="none"),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(min=0, help="--rl: weight of the KL divergence from --adapter.", show_default="preset"),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help="--rl: weights of rewards, as right_tool=0.2,right_values=0.3; others 0.",
            show_default="all six, summing to 1",
        ),
    ] = "",
    easiest: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="--rl: leave out rows that are right with this probability.", show_default="0.9"
        ),
    ] = None,
    hardest: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="--rl: leave out rows less probably right than this.", show_default="0.000001"),
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="--rl: share of gold tools that only measure.", show_default="0.1"),
    ] = None,
    held_rows: Annotated[
        int | None, typer.Option(min=1, help="--rl: most rows to measure with.", show_default="preset")
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="Leave out the first rows, on which the adapter was tuned.")] = 0,
    vllm: Annotated[bool, typer.Option("--vllm", help="--rl: sample with vLLM (GPU, with --no-share).")] = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a call generator with LoRA; checkpointed, seeded, on CPU or GPU, on several by `accelerate launch`.

    A GGUF base is dequantised once, beside the run: the adapter then fits the very weights that are served. With
    --adapter a tuned one learns on, from further rows; with --rl by GRPO, from rewards that programs check, and
    held-out rows are measured before and after.
    """
    from toolscout.finetune.caller.base import prepare_base
    from toolscout.finetune.caller.presets import preset as settings
    from toolscout.finetune.caller.rl_options import rl_preset
    from toolscout.finetune.caller.take_back import adapter_folder
    from toolscout.finetune.caller.train import CallerRunning, train_caller
    from toolscout.finetune.running import speaks

    shared = {
        "rate": rate, "schedule": schedule, "warmup": warmup, "batch": batch, "share": share,
        "steps": steps or None, "limit": limit or None, "skip": skip or None, "seed": seed,
    }  # fmt: skip
    tuning = {
        "rank": rank, "alpha": alpha, "dropout": dropout, "targets": targets, "accumulate": accumulate,
        "max_tokens": max_tokens, "weight_decay": weight_decay,
    }  # fmt: skip
    weighed = named_numbers(weights, "weights", "--weights right_tool=0.4,right_values=0.6") if weights else None
    rewarded = {
        "group": group, "prompts": prompts, "temperature": temperature, "max_prompt": max_prompt,
        "max_completion": max_completion, "loss": loss, "scale": scale, "beta": beta,
        "weights": weighed, "easiest": easiest, "hardest": hardest,
        "held_out": held_out, "held_rows": held_rows, "vllm": vllm or None,
    }  # fmt: skip
    _none_given(tuning if rl else {**rewarded, "tools": tools}, "cannot be used with" if rl else "needs")
    if adapter is not None and (rank or alpha or targets):
        raise BadInput("An adapter keeps its rank, alpha and modules.", "Leave out --rank, --alpha and --targets.")
    if rl and (adapter is None or not tools):
        raise BadInput("--rl needs the adapter to go on from and the rows' tools.", "Give --adapter and --tools.")
    if base.suffix == ".gguf":
        base = prepare_base(base, out.with_name(out.name + "-base"))
    if adapter is not None and adapter.suffix == ".gguf":
        adapter = adapter_folder(adapter, base, out.with_name(out.name + "-adapter"))
    running = CallerRunning(
        threads=threads,
        save_steps=save_steps,
        log_steps=log_steps,
        stop_at=stop_at,
        minutes=minutes,
        precision=precision,
        command=card_command(sys.argv[1:]),
    )
    with progress("Training") as tick:
        if rl and adapter is not None:
            from toolscout.finetune.caller.rl import train_rl
            from toolscout.finetune.pairs import read_pool

            known = read_pool(tools or []).tools
            options = rl_preset(preset, **shared, **rewarded)
            result = train_rl(rows, known, base, adapter, out, options, running, say=note, tick=tick)
        else:
            tuned = settings(preset, **shared, **tuning)
            result = train_caller(rows, base, out, tuned, running, adapter=adapter, say=note, tick=tick)
    if not speaks():
        return
    if as_json:
        emit(result)
    elif result["finished"]:
        say(f"The adapter is in {out / 'adapter'}, its card in {out / 'README.md'}.")
    else:
        say(f"Stopped at step {result['steps']} of {result['of']}. The same command goes on.")


def _none_given(options: Mapping[str, object], how: str) -> None:
    """Raises BadInput when an option of the other way of training is given."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None and value != []]
    if given:
        raise BadInput(f"{given[0]} {how} --rl.", "See `toolscout train caller --help`.")


def _sizes(text: str) -> dict[int, float]:
    try:
        found = {int(n): float(v or 1) for n, _, v in (p.partition("=") for p in text.split(",") if p.strip())}
    except ValueError:
        found = {}
    if not found or min(found) < 1 or min(found.values()) < 0 or sum(found.values()) <= 0:
        raise BadInput(f"{text!r} gives no shares of candidate counts.", "For example: --sizes 5=1,10=2")
    return found


def _styles(text: str) -> dict[Style, float]:
    try:
        found = {n.strip(): float(v or 1) for n, _, v in (p.partition("=") for p in text.split(",") if p.strip())}
    except ValueError:
        found = {}
    if not found or set(found) - set(STYLES) or sum(found.values()) <= 0 or min(found.values()) < 0:
        raise BadInput(f"{text!r} gives no shares of renderings.", "For example: --styles compact=0.9,full=0.1")
    return {name: found[name] for name in STYLES if name in found}


@app.command("caller-export")
def caller_export(
    adapter: Annotated[
        Path,
        typer.Option(help="Adapter folder of a run, a .gguf adapter, or the name of one that comes with Toolscout."),
    ],
    base: Annotated[
        Path, typer.Option(help="Checkpoint folder of the base (RUN-base); a .gguf becomes one beside what is written.")
    ],
    folder: Annotated[
        Path | None, typer.Option(help="Write a .gguf adapter for vLLM (PEFT) to this folder.", show_default=False)
    ] = None,
    base_name: Annotated[
        str, typer.Option(help="The base's name for `toolscout model pull`: goes beside the adapter.")
    ] = "",
    base_gguf: Annotated[Path | None, typer.Option(help="The base's GGUF file.", show_default=False)] = None,
    gguf_adapter: Annotated[
        Path | None, typer.Option(help="Write the adapter for llama.cpp here.", show_default=False)
    ] = None,
    title: Annotated[
        str, typer.Option(help="What `toolscout model list` says of an adapter that comes with Toolscout.")
    ] = "",
    preference: Annotated[
        float, typer.Option(min=0, help="With --title: the model of the highest is used; the known bases have 1, 2, 3.")
    ] = 1.5,
    gguf: Annotated[
        Path | None, typer.Option(help="Write base and adapter in one GGUF file here.", show_default=False)
    ] = None,
    kind: Annotated[str, typer.Option(help="Tensor type of the changed weights in --gguf.")] = "Q8_0",
    merged: Annotated[
        Path | None, typer.Option(help="Write a whole checkpoint (safetensors) to this folder.", show_default=False)
    ] = None,
) -> None:
    """Turn a trained adapter into what serving loads. vLLM takes the adapter folder as it is (--enable-lora)."""
    from toolscout.finetune.caller import export
    from toolscout.finetune.caller.base import prepare_base
    from toolscout.finetune.caller.take_back import adapter_folder
    from toolscout.server.adapters import packaged_adapters

    written = next((path for path in (folder, merged, gguf, gguf_adapter) if path is not None), None)
    if written is None:
        raise BadInput("There is nothing to write.", "Give --folder, --gguf-adapter, --gguf or --merged.")
    if base.suffix == ".gguf":
        base = prepare_base(base, written.with_name(written.name + "-base"))
        say(f"{base}")
    if not adapter.exists() and (known := packaged_adapters().get(str(adapter))):
        adapter = known.path
    if adapter.suffix == ".gguf":
        adapter = adapter_folder(adapter, base, folder or written.with_name(written.name + "-adapter"))
        say(f"{adapter}")
    elif folder is not None:
        raise BadInput(f"{adapter} is a folder already.", "--folder is for a .gguf adapter.")
    if gguf_adapter is not None:
        served = export.served_as(adapter, base=base_name, base_gguf=base_gguf, title=title, rank=preference)
        say(f"{export.write_gguf_adapter(adapter, base, gguf_adapter, served)}")
    if gguf is not None:
        if base_gguf is None:
            raise BadInput("--gguf needs the base's GGUF file.", "Give it with --base-gguf.")
        say(f"{export.write_gguf_merged(adapter, base, base_gguf, gguf, export.served_as(adapter), kind)}")
    if merged is not None:
        say(f"{export.write_merged(adapter, base, merged)}")
