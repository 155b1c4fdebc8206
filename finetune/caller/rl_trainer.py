"""TRL's GRPO trainer over our rows: rewards as it wants them, and shared prompts sampled and computed once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscout.finetune.caller.collate import collate
from toolscout.finetune.caller.rewards import REWARDS, read_answer
from toolscout.finetune.caller.rl_data import RlRow
from toolscout.finetune.caller.rl_options import RlOptions, accumulation
from toolscout.finetune.caller.rl_rollout import sample
from toolscout.finetune.caller.tokens import IGNORED, Pack, TokenRow, chat_text, make_packs
from toolscout.finetune.caller.train import CallerRunning
from toolscout.finetune.running import Progress, Say, Tick
from toolscout.records import JsonObject, sha256_hex

_TOGETHER = 64
"""Answers that are sampled side by side."""

_LOGGED = {
    "reward": "reward",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "dead_groups",
    "completions/mean_length": "answer_tokens",
    "completions/clipped_ratio": "cut_off",
    "entropy": "entropy",
    "kl": "kl",
    "grad_norm": "grad_norm",
    "learning_rate": "rate",
}
"""What TRL logs at each step, and what we call it. A dead group's answers all earned the same: no gradient."""


class RewardLog(Progress):
    """Progress, and the numbers of every step; ``prompts`` are a step's."""

    def __init__(self, running: CallerRunning, say: Say, tick: Tick, prompts: int) -> None:
        super().__init__(running, say, tick)
        self.every = running.log_steps or 1
        self.prompts = prompts
        self.steps: list[JsonObject] = []

    def begun(self, state: Any) -> None:
        super().begun(state)
        self.steps = [_logged(line) for line in state.log_history if "reward" in line]

    def logged(self, state: Any, logs: Mapping[str, Any]) -> None:
        if "reward" not in logs:
            return
        step = _logged({**logs, "step": state.global_step})
        self.steps.append(step)
        if state.global_step % self.every == 0:
            self.say(
                f"step {state.global_step} of {state.max_steps}: reward {step['reward']:.3f}, "
                f"dead groups {step['dead_groups']:.0%}, {step['answer_tokens']:.0f} tokens an answer, "
                f"{self.seconds_a_step():.1f} s a step"
            )

    def overview(self) -> JsonObject:
        """Means over the first and the last quarter of the steps, and how many groups were dead."""
        quarter = max(1, len(self.steps) // 4)
        names = ("reward", "dead_groups", "answer_tokens", "cut_off", "entropy", "kl")

        def means(some: Sequence[JsonObject]) -> JsonObject:
            known = {n: [s[n] for s in some if n in s] for n in names}
            return {n: round(sum(v) / len(v), 4) for n, v in known.items() if v}

        return {
            "groups": len(self.steps) * self.prompts,
            "dead_groups": round(sum(s.get("dead_groups", 0.0) for s in self.steps) * self.prompts),
            "first_quarter": means(self.steps[:quarter]),
            "last_quarter": means(self.steps[-quarter:]),
        }


def reward_functions(rows: Sequence[RlRow], tokenizer: Any) -> list[Any]:
    """The rewards in the form that TRL calls; the column ``row`` says which row a completion answers."""

    def wrap(name: str) -> Any:
        def reward(completion_ids: Sequence[Sequence[int]], row: Sequence[int], **rest: Any) -> list[float]:
            texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
            return [REWARDS[name](read_answer(t), rows[i].target) for t, i in zip(texts, row, strict=True)]

        reward.__name__ = name
        return reward

    return [wrap(name) for name in REWARDS]


def shared_packs(rows: Sequence[TokenRow]) -> tuple[list[Pack], list[int]]:
    """Packs in which each prompt is computed once for all its answers, prompts side by side where that costs less;
    beside them, which row each branch is."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].ids[: rows[i].start])
    packs: list[Pack] = []
    members: list[list[int]] = []
    for i in order:
        prompt = rows[i].ids[: rows[i].start]
        if members and rows[members[-1][0]].ids[: rows[members[-1][0]].start] == prompt:
            members[-1].append(i)
        else:
            members.append([i])
    groups: list[list[int]] = []
    for some in members:
        pack = _packed(rows, some)
        if groups and (both := _packed(rows, groups[-1] + some)).size < packs[-1].size + pack.size:
            groups[-1] = groups[-1] + some
            packs[-1] = both
        else:
            groups.append(some)
            packs.append(pack)
    return packs, [i for some in groups for i in some]


def _packed(rows: Sequence[TokenRow], some: Sequence[int]) -> Pack:
    chosen = [TokenRow(0, rows[i].ids, rows[i].start) for i in some]
    (pack,), _ = make_packs(chosen, max_tokens=sum(len(r.ids) for r in chosen), share=True)
    return pack


def packed_logps(
    model: Any, rows: Sequence[TokenRow], temperature: float, *, one_pass: bool = False
) -> tuple[Any, Any]:
    """Log-probability and entropy of each answer token at ``temperature``: two lists of tensors [answer tokens].

    ``one_pass``: all packs in one batch, so that every process calls the model equally often. Entropies have no
    gradient.
    """
    import torch

    device = next(model.parameters()).device
    packs, order = shared_packs(rows)
    logps: list[Any] = [None] * len(rows)
    entropies: list[Any] = [None] * len(rows)
    numbers = iter(order)
    for some in [packs] if one_pass else [[pack] for pack in packs]:
        batch = {k: v.to(device) for k, v in collate(some, 0, sizes=True).items()}
        labels = batch.pop("labels")[:, 1:]
        wanted = (labels != IGNORED).any(0).nonzero().squeeze(1)
        logits = model(**batch, use_cache=False, logits_to_keep=wanted).logits.float() / temperature
        for pack, each, right in zip(some, logits, labels[:, wanted], strict=True):
            mine, right = each[right != IGNORED], right[right != IGNORED]
            whole = mine.logsumexp(-1)
            picked = mine.gather(1, right[:, None])[:, 0] - whole
            with torch.no_grad():
                spread = whole - (torch.softmax(mine, -1) * mine).sum(-1)
            sizes = [len(b) - s for b, s in zip(pack.branches, pack.starts, strict=True)]
            for logp, entropy in zip(picked.split(sizes), spread.split(sizes), strict=True):
                number = next(numbers)
                logps[number], entropies[number] = logp, entropy
    return logps, entropies


def make_trainer(
    model: Any,
    tokenizer: Any,
    rows: Sequence[RlRow],
    out: Path,
    options: RlOptions,
    running: CallerRunning,
    total: int,
    bf16: bool,
    gpu: bool,
) -> Any:
    """TRL's trainer over the rows in their order."""
    import torch
    from datasets import Dataset
    from torch.nn.utils.rnn import pad_sequence
    from trl import GRPOConfig, GRPOTrainer

    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # custom sampling is marked experimental
    args = GRPOConfig(
        output_dir=str(out / "checkpoints"),
        max_steps=total,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=accumulation(options, int(os.environ.get("WORLD_SIZE", "1"))),
        num_generations=options.group,
        max_completion_length=options.max_completion,
        temperature=options.temperature,
        top_p=1.0,
        top_k=0,
        loss_type=options.loss,
        scale_rewards=options.scale,
        beta=options.beta,
        epsilon=options.epsilon,
        reward_weights=[options.weights.get(name, 0.0) for name in REWARDS],
        learning_rate=options.rate,
        lr_scheduler_type=options.schedule,
        warmup_steps=int(options.warmup * total),
        shuffle_dataset=False,
        disable_dropout=True,
        chat_template_kwargs={"enable_thinking": False},
        use_vllm=options.vllm,
        vllm_mode="colocate",
        bf16=bf16,
        fp16=False,
        use_cpu=not gpu,
        gradient_checkpointing=gpu,
        seed=options.seed,
        save_strategy="steps",
        save_steps=running.save_steps,
        save_total_limit=2,
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        dataloader_pin_memory=gpu,
    )

    class SharingTrainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        """Computes what the answers of a step have in common once."""

        def _get_per_token_logps_and_entropies(
            self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, *given: Any, **rest: Any
        ) -> tuple[Any, Any, None]:
            answered = [
                TokenRow(0, ids[mask == 1].tolist(), int(mask[:-logits_to_keep].sum()))
                for ids, mask in zip(input_ids, attention_mask, strict=True)
            ]
            one_pass = self.accelerator.num_processes > 1
            with self.accelerator.autocast():
                found = packed_logps(model, answered, self.temperature, one_pass=one_pass)
            logps, entropies = (_padded(pad_sequence(part, batch_first=True), logits_to_keep) for part in found)
            return logps, entropies, None

    def rollout(prompts: Sequence[Any], trainer: Any) -> JsonObject:
        """Answers to prompts of which each comes several times in a row."""
        ids = [tokenizer(chat_text(tokenizer, p), add_special_tokens=False)["input_ids"] for p in prompts]
        times = _run_length(ids)
        completions: list[list[int]] = []
        at = 0
        while at < len(times):
            count = times[at][1]
            end = at + 1
            while end < len(times) and times[end][1] == count and (end - at + 1) * count <= _TOGETHER:
                end += 1
            mark = f"{options.seed} {trainer.state.global_step} {trainer.accelerator.process_index} {at}"
            found = sample(
                trainer.accelerator.unwrap_model(trainer.model),
                [prompt for prompt, _ in times[at:end]],
                count,
                max_new=options.max_completion,
                temperature=options.temperature,
                end=[tokenizer.eos_token_id],
                seed=int(sha256_hex(mark)[:15], 16),
            )
            completions += [answer for answers in found for answer in answers]
            at = end
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}

    trainer = (SharingTrainer if options.share else GRPOTrainer)(
        model=model,
        args=args,
        reward_funcs=reward_functions(rows, tokenizer),
        train_dataset=Dataset.from_list([{"prompt": r.row.messages, "row": i} for i, r in enumerate(rows)]),
        processing_class=tokenizer,
        rollout_func=rollout if options.share else None,
    )
    torch.manual_seed(options.seed)
    return trainer


def _padded(values: Any, width: int) -> Any:
    from torch.nn.functional import pad

    return pad(values, (0, width - values.shape[1]))


def _run_length(prompts: Sequence[list[int]]) -> list[tuple[list[int], int]]:
    out: list[tuple[list[int], int]] = []
    for prompt in prompts:
        if out and out[-1][0] == prompt:
            out[-1] = (prompt, out[-1][1] + 1)
        else:
            out.append((prompt, 1))
    return out


def _logged(line: JsonObject) -> JsonObject:
    out: JsonObject = {"step": line["step"]}
    out |= {ours: round(float(line[theirs]), 5) for theirs, ours in _LOGGED.items() if theirs in line}
    rewards = {name: line.get(f"rewards/{name}/mean") for name in REWARDS}
    return out | {"rewards": {name: round(float(v), 4) for name, v in rewards.items() if v is not None}}
