"""Settings of reinforcement learning for the call generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolscout.errors import BadInput
from toolscout.finetune.caller.rewards import REWARDS

WEIGHTS: dict[str, float] = {
    "valid_json": 0.1,
    "schema_valid": 0.1,
    "right_tool": 0.2,
    "right_names": 0.2,
    "right_values": 0.3,
    "right_abstention": 0.1,
}
"""They sum to 1, what a right answer earns. Form and schema weigh little: constrained decoding gives both anyway."""


@dataclass(frozen=True)
class RlOptions:
    """How one run trains; all of it decides the result. The defaults are for a GPU."""

    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    group: int = 8
    """Answers to each prompt, which are compared with each other."""
    prompts: int = 16
    """Prompts in a step, on all processes together."""
    batch: int = 8
    """Answers in a backward pass of a process; ``prompts * group`` answers make a step."""
    temperature: float = 1.0
    max_prompt: int = 2048
    """Tokens of a prompt; rows with longer ones are left out."""
    max_completion: int = 256
    """Tokens of an answer; rows whose right answer is longer are left out."""
    loss: str = "dr_grpo"
    """TRL's loss. ``dr_grpo`` divides by a constant: dividing by each answer's length rewards long wrong answers."""
    scale: str = "none"
    """Whether advantages are divided by the ``group``'s or the ``batch``'s spread. ``none``: else groups in which
    nearly all answers are alike weigh most."""
    beta: float = 0.01
    """Weight of the KL divergence from the adapter that the run started with (not from the bare base)."""
    epsilon: float = 0.2
    rate: float = 1e-5
    schedule: str = "constant_with_warmup"
    warmup: float = 0.05
    steps: int = 0
    """Stop after so many; 0: once over all rows drawn."""
    easiest: float = 0.9
    """Rows whose right answer the model already writes with at least this probability are left out: all answers to
    them earn the same, and a group of equal rewards teaches nothing."""
    hardest: float = 1e-6
    """Rows whose right answer is less probable than this are left out: what is never written is never rewarded."""
    held_out: float = 0.1
    """Share of the gold tools (by hash) whose rows measure and never train."""
    held_rows: int = 200
    """At most so many of them are measured."""
    skip: int = 0
    """Leave out the first so many rows: those that the adapter was tuned on."""
    limit: int = 0
    """Of the rest only the first so many; 0: all."""
    share: bool = False
    """Sample and compute what prompts have in common once (``rl_rollout``), else all by TRL's own ways."""
    vllm: bool = False
    """Sample with vLLM within the training process (TRL's ``colocate``). Needs a GPU and vLLM."""
    seed: int = 0


RL_PRESETS: dict[str, RlOptions] = {
    "qwen3-4b": RlOptions(),
    "qwen2.5-coder-0.5b": RlOptions(rate=2e-5, max_completion=192, share=True, batch=32),
    "smollm2-135m": RlOptions(
        group=6, prompts=4, batch=24, max_prompt=512, max_completion=64, beta=0.0, rate=1e-4, held_rows=48, share=True
    ),
}
"""``smollm2-135m`` is small enough for one core: short prompts, short answers, 24 answers a step, no reference pass."""


def rl_preset(name: str, **changes: Any) -> RlOptions:
    """A preset with changes; None means unchanged. Raises BadInput for an unknown name or impossible settings."""
    if name not in RL_PRESETS:
        raise BadInput(f"There is no preset {name!r}.", f"Presets are {', '.join(RL_PRESETS)}.")
    options = replace(RL_PRESETS[name], **{k: v for k, v in changes.items() if v is not None})
    unknown = set(options.weights) - set(REWARDS)
    if unknown or min(options.weights.values(), default=0) < 0 or sum(options.weights.values()) <= 0:
        raise BadInput(
            f"These are no weights of rewards: {dict(options.weights)}.", f"Rewards are {', '.join(REWARDS)}."
        )
    if options.loss not in LOSSES or options.scale not in SCALES:
        raise BadInput(
            f"There is no loss {options.loss!r} with scale {options.scale!r}.",
            f"Losses are {', '.join(LOSSES)}; scales {', '.join(SCALES)}.",
        )
    if options.group < 2 or options.temperature <= 0 or not 0 < options.held_out < 1:
        raise BadInput(
            "Answers are compared in groups of 2 or more, sampled at a temperature above 0, and measured on a share "
            "of the tools between 0 and 1."
        )
    if options.vllm and options.share:
        raise BadInput("vLLM samples in its own way.", "Give --no-share with --vllm.")
    return options


LOSSES = ("dr_grpo", "grpo", "bnpo", "dapo")
SCALES = ("none", "group", "batch")


def accumulation(options: RlOptions, processes: int) -> int:
    """Passes in a step. Raises BadInput when the answers of a step do not divide into them."""
    answers, each = options.prompts * options.group, options.batch * processes
    if answers % each:
        raise BadInput(
            f"{options.prompts} prompts x {options.group} answers do not divide into passes of {options.batch} answers "
            f"on {processes} processes.",
            "Change --batch, --prompts or --group.",
        )
    return answers // each
