"""Rows for reinforcement learning: what fits, what is held out, and what is neither too easy nor too hard."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.finetune.caller import attention
from toolscout.finetune.caller.collate import collate
from toolscout.finetune.caller.rewards import Target, score, target_of
from toolscout.finetune.caller.rl_options import RlOptions
from toolscout.finetune.caller.rl_rollout import attending
from toolscout.finetune.caller.tokens import IGNORED, TokenRow, make_packs, tokenize
from toolscout.records import JsonObject, Tool
from toolscout.synth.call_rows import CallRow


@dataclass(frozen=True)
class RlRow:
    """A row with its tokens and what is right for it."""

    row: CallRow
    tokens: TokenRow
    target: Target

    @property
    def prompt(self) -> list[int]:
        """Token ids up to where the answer starts."""
        return self.tokens.ids[: self.tokens.start]


def usable_rows(
    rows: Sequence[CallRow], tools: Mapping[str, Tool], tokenizer: Any, options: RlOptions
) -> tuple[list[RlRow], Counter[str]]:
    """Rows that can be learned from, in order; beside them, how many were left out and why.

    A row whose own answer does not earn every reward is left out: its gold breaks its schema, and nothing could be
    right. Raises BadInput when ``tools`` lacks a candidate.
    """
    left: Counter[str] = Counter()
    found = []
    for row, tokens in zip(rows, tokenize(rows, tokenizer), strict=True):
        target = target_of(row, tools)
        if tokens.start > options.max_prompt:
            left["prompt too long"] += 1
        elif len(tokens.ids) - tokens.start > options.max_completion:
            left["answer too long"] += 1
        elif min(score(row.answer, target).values()) < 1:
            left["gold breaks the rules"] += 1
        else:
            found.append(RlRow(row, tokens, target))
    return found, left


def held_out(row: CallRow, share: float) -> bool:
    """Whether a row measures: by the hash of its gold tool, so that no tool is on both sides; a row that no candidate
    serves has none and goes by its request."""
    mark = hashlib.sha256((row.gold or f"none\n{row.query}").encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(mark[:8], "big") < share * 2**64


def measured_rows(rows: Sequence[RlRow], options: RlOptions) -> list[RlRow]:
    """At most ``held_rows`` of the held-out rows, drawn by seed, like prompts next to each other."""
    held = [r for r in rows if held_out(r.row, options.held_out)]
    drawn = random.Random(f"{options.seed} held out").sample(held, min(len(held), options.held_rows))
    return sorted(drawn, key=lambda r: (r.row.group, r.row.id))


def drawn_rows(
    rows: Sequence[RlRow], model: Any, options: RlOptions, file: Path, say: Callable[[str], None]
) -> tuple[list[RlRow], Counter[str]]:
    """Training rows of middling difficulty in their order, those of a group of candidates next to each other.

    How hard a row is, is how likely the model is to write its right answer, in one pass and without sampling. Groups
    are looked at in an order drawn by seed until there are rows for every step; ``file`` keeps what was found, so
    that a resumed run looks at nothing twice. Beside the rows: how many were too easy and too hard.
    """
    groups: dict[int, list[RlRow]] = defaultdict(list)
    for row in rows:
        if not held_out(row.row, options.held_out):
            groups[row.row.group].append(row)
    order = random.Random(f"{options.seed} groups").sample(sorted(groups), len(groups))
    wanted = options.steps * options.prompts or len(rows)
    known = {line["id"]: line["p"] for line in whole_lines(file)}
    found: list[RlRow] = []
    left: Counter[str] = Counter()
    with file.open("a", encoding="utf-8") as sink:
        for number, group in enumerate(order):
            if len(found) >= wanted:
                break
            new = [r for r in groups[group] if r.row.id not in known]
            for row, chance in zip(new, gold_probabilities(model, [r.tokens for r in new]), strict=True):
                known[row.row.id] = chance
                sink.write(json.dumps({"id": row.row.id, "p": chance}) + "\n")
            sink.flush()
            for row in groups[group]:
                chance = known[row.row.id]
                if chance >= options.easiest:
                    left["too easy"] += 1
                elif chance < options.hardest:
                    left["too hard"] += 1
                else:
                    found.append(row)
            if new and number % 10 == 0:
                say(f"looked at {number + 1} groups of candidates: {len(found)} rows of middling difficulty")
    if len(found) < options.prompts:
        raise BadInput(
            f"Only {len(found)} rows are of middling difficulty: {left['too easy']} are too easy, "
            f"{left['too hard']} too hard.",
            "Widen --easiest and --hardest, or give more rows.",
        )
    return found[:wanted], left


def gold_probabilities(model: Any, rows: Sequence[TokenRow]) -> list[float]:
    """The probability of each row's right answer, its end token with it; rows of a group are computed together."""
    import torch

    device = next(model.parameters()).device
    out: list[float] = []
    packs, _ = make_packs(rows, max_tokens=max((len(r.ids) for r in rows), default=0) * 8, share=True)
    was_training = model.training
    model.eval()
    try:
        for pack in packs:
            batch = {k: v.to(device) for k, v in collate([pack], 0, sizes=True).items()}
            labels = batch.pop("labels")[0, 1:]
            wanted = (labels != IGNORED).nonzero().squeeze(1)
            with torch.no_grad(), attending(model, attention.register()):
                logits = model(**batch, use_cache=False, logits_to_keep=wanted).logits[0].float()
            each = torch.log_softmax(logits, -1).gather(1, labels[wanted, None])[:, 0]
            sizes = [len(b) - s for b, s in zip(pack.branches, pack.starts, strict=True)]
            out += [float(part.sum().exp()) for part in each.split(sizes)]
    finally:
        model.train(was_training)
    return out


def whole_lines(file: Path) -> list[JsonObject]:
    """What an earlier start wrote, line by line. A last line cut off by a crash is dropped, from the file too."""
    if not file.is_file():
        return []
    text = file.read_text("utf-8")
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        file.write_text(text, "utf-8")
    return [json.loads(line) for line in text.split("\n")[:-1]]
