"""Supervised fine-tuning of the call generator: LoRA with PEFT, trained by TRL's trainer.

    toolscout train caller-rows --calls ... --tools ... --dev ... --out rows.jsonl.gz
    toolscout train caller --rows rows.jsonl.gz --base FOLDER_OR_GGUF --preset smollm2-135m --out RUN

The run folder:

    run.json        what decides the run: options, hashes of rows and base
    checkpoints/    the same command goes on from the last one
    adapter/        the LoRA adapter (PEFT), as vLLM loads it; a stopped run leaves its adapter so far
    train.json      numbers: rows, lengths, loss, time
    README.md       the model card

Several GPUs: ``accelerate launch --config_file runs/accelerate.yaml -m toolscout train caller ...``. Needs the
``train`` extra.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.files import write_json
from toolscout.finetune.caller.attention import register
from toolscout.finetune.caller.base import check_adapter, load_adapted, load_base, require_training
from toolscout.finetune.caller.card import write_card
from toolscout.finetune.caller.collate import collate
from toolscout.finetune.caller.presets import CallerOptions
from toolscout.finetune.caller.tokens import IGNORED, Pack, by_length, length_stats, make_packs, tokenize
from toolscout.finetune.model import model_hash, use_threads
from toolscout.finetune.precision import bfloat16_pays, in_bfloat16
from toolscout.finetune.running import (
    Progress,
    Running,
    Say,
    Tick,
    follow,
    logged_losses,
    run_in,
    speaks,
    train_on,
)
from toolscout.index.asset import file_sha256
from toolscout.jsonl import read_records
from toolscout.records import JsonObject
from toolscout.synth.call_rows import CallRow


@dataclass(frozen=True)
class CallerRunning(Running):
    """``log_steps``: report every so many; 0: about twenty times. ``precision``: auto (what is faster on this machine;
    by reinforcement bfloat16 on a GPU alone), bfloat16 or float32."""

    save_steps: int = 25
    log_steps: int = 0
    precision: str = "auto"


def train_caller(
    rows: Path,
    base: Path,
    out: Path,
    options: CallerOptions,
    running: CallerRunning | None = None,
    *,
    adapter: Path | None = None,
    say: Say = lambda _: None,
    tick: Tick = lambda done, total: None,
) -> JsonObject:
    """Train, or go on with the run in ``out``; returns what ``train.json`` says (``finished`` False if stopped).

    ``rows`` is a file of :class:`~toolscout.synth.call_rows.CallRow`, ``base`` a checkpoint folder. With ``adapter``,
    a folder that an earlier run wrote, that adapter learns on (its rank and modules stay as they are). Raises BadInput
    for unusable rows and when ``out`` holds another run, NotFound without base weights, ModelError without the extra,
    StorageError when ``out`` cannot be written.
    """
    require_training()
    running = running or CallerRunning()
    identity = {
        "options": json.loads(json.dumps(asdict(options))),
        "rows": {"file": rows.name, "sha256": file_sha256(rows)},
        "base": model_hash(base),
    }
    if adapter is not None:
        identity["adapter"] = file_sha256(check_adapter(adapter))
    say = say if speaks() else (lambda _: None)
    return run_in(out, identity, lambda: _train(rows, base, adapter, out, options, running, identity, say, tick), say)


def _train(
    path: Path,
    base: Path,
    adapter: Path | None,
    out: Path,
    options: CallerOptions,
    running: CallerRunning,
    identity: JsonObject,
    say: Say,
    tick: Tick,
) -> JsonObject:
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    use_threads(running.threads)
    gpu = torch.cuda.is_available()
    bf16 = in_bfloat16(running.precision, bfloat16_pays())
    rows = list(read_records(path, CallRow))[options.skip : options.skip + options.limit if options.limit else None]
    if not rows:
        raise BadInput(f"{path} holds no rows to learn from.", "Lower --skip, or make rows with train caller-rows.")
    # A GPU computes a masked square faster than it would the parts.
    if adapter is not None:
        model, tokenizer = load_adapted(base, adapter, bf16=bf16, share=not gpu)
    else:
        model, tokenizer = load_base(
            base, dtype=torch.bfloat16 if bf16 else torch.float32, attention="sdpa" if gpu else register()
        )
    tokens = tokenize(rows, tokenizer)
    packs, too_long = make_packs(tokens, max_tokens=options.max_tokens, share=options.share)
    if not packs:
        raise BadInput("Every row is longer than --max-tokens.", "Raise it.")
    packs = by_length(packs, options.batch, 8 * options.accumulate)
    lengths = length_stats(tokens, packs)
    say(
        f"{lengths['rows']} rows in {len(packs)} packs, {lengths['tokens_computed_a_row']} tokens computed a row, "
        f"{too_long} too long"
    )
    trainer = _trainer(model, tokenizer, packs, out, options, running, bf16, gpu)
    progress = Progress(running, say, tick)
    follow(trainer, progress)
    result = train_on(trainer, out, f"{trainer.args.max_steps} steps", say)
    result |= {
        "precision": "bfloat16" if bf16 else "float32",
        "seconds_a_step": progress.seconds_a_step(),
        "loss": _losses(trainer.state.log_history),
        "lengths": lengths,
        "too_long": too_long,
        "kinds": dict(Counter(row.kind for row in rows)),
        "candidates": dict(sorted(Counter(len(row.tools) for row in rows).items())),
        "styles": dict(Counter(f"{row.style} {row.budget}" for row in rows)),
    }
    if trainer.is_world_process_zero():
        for settings in trainer.model.peft_config.values():
            settings.base_model_name_or_path = base.name  # not where it lay on this machine
        trainer.model.save_pretrained(str(out / "adapter"))
        tokenizer.save_pretrained(str(out / "adapter"))
        (style, budget), _ = Counter((row.style, row.budget) for row in rows).most_common(1)[0]
        write_json(out / "adapter" / "prompt.json", {"style": style, "budget": budget})
        if result["finished"]:
            write_card(out / "README.md", identity, result, running.command)
            write_json(out / "train.json", result)
    return result


def _losses(history: list[dict[str, Any]]) -> JsonObject:
    steps = logged_losses(history)
    return {"first": steps[0] if steps else None, "last": steps[-1] if steps else None, "by_step": steps}


def total_steps(packs: int, options: CallerOptions, processes: int = 1) -> int:
    """Steps that show every pack once, or fewer where ``steps`` says so."""
    every = options.batch * options.accumulate * processes
    whole = max(1, packs // every)
    return min(whole, options.steps) if options.steps else whole


def lora_config(options: CallerOptions) -> Any:
    """PEFT's configuration of the adapter."""
    from peft import LoraConfig

    targets = options.targets if options.targets == "all-linear" else options.targets.split(",")
    return LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )


def _trainer(
    model: Any,
    tokenizer: Any,
    packs: Sequence[Pack],
    out: Path,
    options: CallerOptions,
    running: CallerRunning,
    bf16: bool,
    gpu: bool,
) -> Any:
    """TRL's trainer over ready packs in their order."""
    import torch
    from datasets import Dataset
    from torch.nn.functional import cross_entropy
    from torch.utils.data import SequentialSampler
    from trl import SFTConfig, SFTTrainer

    total = total_steps(len(packs), options, int(os.environ.get("WORLD_SIZE", "1")))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    args = SFTConfig(
        output_dir=str(out / "checkpoints"),
        max_steps=total,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.rate,
        lr_scheduler_type=options.schedule,
        warmup_steps=int(options.warmup * total),
        weight_decay=options.weight_decay,
        max_length=None,
        bf16=bf16,
        fp16=False,
        use_cpu=not gpu,
        gradient_checkpointing=gpu,
        seed=options.seed,
        save_strategy="steps",
        save_steps=running.save_steps,
        save_total_limit=2,
        logging_steps=running.log_steps or max(1, min(10, total // 20)),
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
        dataloader_pin_memory=gpu,
        dataset_kwargs={"skip_prepare_dataset": True},
        include_num_input_tokens_seen="no",
    )

    class PackTrainer(SFTTrainer):  # type: ignore[misc, unused-ignore]
        """Packs as they come, and logits only where an answer is written: the rest of them is a fifth of the work."""

        def _get_train_sampler(self, *given: Any) -> Any:
            return SequentialSampler(self.train_dataset)

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            labels = inputs.pop("labels")
            wanted = (labels[:, 1:] != IGNORED).any(0).nonzero().squeeze(1)
            output = model(**inputs, use_cache=False, logits_to_keep=wanted)
            right = labels[:, wanted + 1]
            logits = output.logits.float()
            loss = cross_entropy(logits.flatten(0, 1), right.flatten(), ignore_index=IGNORED, reduction="sum")
            count = num_items_in_batch if num_items_in_batch is not None else (right != IGNORED).sum()
            loss = loss / count
            if self.args.average_tokens_across_devices and num_items_in_batch is not None:
                loss = loss * self.accelerator.num_processes
            return (loss, output) if return_outputs else loss

    trainer = PackTrainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list([asdict(pack) for pack in packs]),
        data_collator=lambda rows: collate([Pack(**row) for row in rows], pad, sizes=not gpu),
        processing_class=tokenizer,
        peft_config=None if hasattr(model, "peft_config") else lora_config(options),
    )
    torch.manual_seed(options.seed)
    return trainer
