"""Reinforcement learning of the call generator: GRPO (arXiv 2402.03300) by TRL, from verifiable rewards alone.

    toolscout train caller --rl --rows rows.jsonl.gz --tools tools.jsonl.gz --base FOLDER --adapter RUN/adapter --out RL

It goes on from the adapter that fine-tuning made, over the same rows. The loss is Dr. GRPO's (arXiv 2503.20783) unless
told otherwise. The run folder is that of fine-tuning (``train``), with

    probabilities.jsonl      how likely the first adapter is to write each row's right answer: what makes a row hard
    held_out.before.jsonl    greedy answers to the held-out rows, and
    held_out.after.jsonl     the same after training
    train.json               settings, rows, rewards by step with the share of dead groups, held-out numbers

Several GPUs: ``accelerate launch --config_file runs/accelerate.yaml -m toolscout train caller --rl ...``.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.files import write_json
from toolscout.finetune.caller.base import check_adapter, load_adapted, require_training
from toolscout.finetune.caller.rl_card import write_rl_card
from toolscout.finetune.caller.rl_data import RlRow, drawn_rows, held_out, measured_rows, usable_rows
from toolscout.finetune.caller.rl_measure import Measured, comparison, measure, summary
from toolscout.finetune.caller.rl_options import RlOptions, accumulation
from toolscout.finetune.caller.rl_trainer import RewardLog, make_trainer
from toolscout.finetune.caller.train import CallerRunning
from toolscout.finetune.model import model_hash, use_threads
from toolscout.finetune.precision import in_bfloat16
from toolscout.finetune.running import Say, Tick, follow, run_in, speaks, train_on
from toolscout.index.asset import file_sha256
from toolscout.jsonl import read_records
from toolscout.records import JsonObject, Tool, sha256_hex
from toolscout.synth.call_rows import CallRow


def train_rl(
    rows: Path,
    tools: Mapping[str, Tool],
    base: Path,
    adapter: Path,
    out: Path,
    options: RlOptions,
    running: CallerRunning | None = None,
    *,
    say: Say = lambda _: None,
    tick: Tick = lambda done, total: None,
) -> JsonObject:
    """Train, or go on with the run in ``out``; returns what ``train.json`` says (``finished`` False if stopped).

    ``tools`` are the tools that the rows' candidates are drawn from, ``adapter`` a folder that fine-tuning wrote.
    Raises BadInput for unusable rows and settings and when ``out`` holds another run, NotFound without base or adapter,
    ModelError without the extra, StorageError when ``out`` cannot be written.
    """
    require_training()
    running = running or CallerRunning()
    weights = check_adapter(adapter)
    accumulation(options, int(os.environ.get("WORLD_SIZE", "1")))
    shown = {tool_id for row in read_records(rows, CallRow) for tool_id in row.tools}
    identity: JsonObject = {
        "options": {"rl": json.loads(json.dumps(asdict(options)))},
        "rows": {"file": rows.name, "sha256": file_sha256(rows)},
        "tools": sha256_hex("\n".join(sorted(f"{t} {tools[t].computed_fingerprint()}" for t in shown if t in tools))),
        "base": model_hash(base),
        "adapter": file_sha256(weights),
    }
    say = say if speaks() else (lambda _: None)
    return run_in(
        out, identity, lambda: _train(rows, tools, base, adapter, out, options, running, identity, say, tick), say
    )


def _train(
    path: Path,
    tools: Mapping[str, Tool],
    base: Path,
    adapter: Path,
    out: Path,
    options: RlOptions,
    running: CallerRunning,
    identity: JsonObject,
    say: Say,
    tick: Tick,
) -> JsonObject:
    import torch
    from accelerate import PartialState  # type: ignore[import-not-found, unused-ignore]
    from transformers.utils import logging

    logging.disable_progress_bar()
    use_threads(running.threads)
    gpu = torch.cuda.is_available()
    state = PartialState(cpu=not gpu)
    # Not on CPUs, though it may be faster: what is learned from and measured are small differences of probability.
    bf16 = in_bfloat16(running.precision, gpu and torch.cuda.is_bf16_supported())
    model, tokenizer = load_adapted(base, adapter, bf16=bf16, share=options.share)
    model.to(state.device)
    rows, left = _read(path, tools, tokenizer, options)
    held = measured_rows(rows, options)
    say(
        f"{len(rows)} usable rows, {sum(held_out(r.row, options.held_out) for r in rows)} of them held out, "
        f"of which {len(held)} are measured"
    )
    before: list[Measured] = []
    # One process looks and measures, the others wait and then read what it wrote.
    with state.main_process_first():
        quiet = say if state.is_main_process else (lambda _: None)
        drawn, difficulty = drawn_rows(rows, model, options, out / "probabilities.jsonl", quiet)
        if state.is_main_process:
            before = measure(model, tokenizer, held, options, out / "held_out.before.jsonl", say=say)
            _say_summary("before", summary(before, options), say)
    total = options.steps or max(1, len(drawn) // options.prompts)
    trainer = make_trainer(model, tokenizer, drawn, out, options, running, total, bf16, gpu)
    log = RewardLog(running, say, tick, options.prompts)
    follow(trainer, log)
    started = time.monotonic()
    result: JsonObject = {"method": "GRPO"}
    result |= train_on(trainer, out, f"{len(drawn)} rows drawn; {total} steps", say)
    result |= {
        "seconds": round(time.monotonic() - started, 1),
        "seconds_a_step": log.seconds_a_step(),
        "rows": {
            "usable": len(rows),
            "left_out": dict(left) | dict(difficulty),
            "drawn": len(drawn),
            "kinds_drawn": dict(Counter(r.row.kind for r in drawn)),
            "held_out_tools_share": options.held_out,
        },
        "training": log.overview(),
    }
    if trainer.is_world_process_zero():
        trained = trainer.accelerator.unwrap_model(trainer.model)
        _save(trained, tokenizer, base, rows, out / "adapter")
        if result["finished"]:
            after = measure(trained, tokenizer, held, options, out / "held_out.after.jsonl", say=say)
            result["held_out"] = {
                "before": summary(before, options),
                "after": summary(after, options),
                **comparison(before, after),
            }
            _say_summary("after", result["held_out"]["after"], say)
            write_rl_card(out / "README.md", identity, result, running.command)
            result["by_step"] = log.steps
            write_json(out / "train.json", result)
    return result


def _read(path: Path, tools: Mapping[str, Tool], tokenizer: Any, options: RlOptions) -> tuple[list[RlRow], Any]:
    end = options.skip + options.limit if options.limit else None
    rows = list(read_records(path, CallRow))[options.skip : end]
    if not rows:
        raise BadInput(f"{path} holds no rows to learn from.", "Lower --skip, or make rows with train caller-rows.")
    found, left = usable_rows(rows, tools, tokenizer, options)
    if not any(held_out(r.row, options.held_out) for r in found):
        raise BadInput("No row is held out to measure with.", "Raise --held-out, or give more rows.")
    return found, left


def _save(model: Any, tokenizer: Any, base: Path, rows: Sequence[RlRow], folder: Path) -> None:
    for settings in model.peft_config.values():
        settings.base_model_name_or_path = base.name  # not where it lay on this machine
    model.save_pretrained(str(folder), selected_adapters=["default"])
    tokenizer.save_pretrained(str(folder))
    (style, budget), _ = Counter((r.row.style, r.row.budget) for r in rows).most_common(1)[0]
    write_json(folder / "prompt.json", {"style": style, "budget": budget})


def _say_summary(when: str, found: JsonObject, say: Say) -> None:
    calls = found["calls"]
    say(
        f"held out, {when}: reward {found['reward']}; {calls['rows']} calls: tool {calls['tool']}, "
        f"param {calls['param']}, AST {calls['ast']}"
    )
