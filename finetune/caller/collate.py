"""Packs as tensors: each branch sees the shared prefix and itself, at the positions it has when it stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolscout.finetune.caller.tokens import IGNORED, Pack


def collate(packs: Sequence[Pack], pad: int, *, sizes: bool = False) -> dict[str, Any]:
    """``input_ids``, ``position_ids``, ``labels`` int64 [packs, tokens]; ``attention_mask`` bool [packs, 1, tokens,
    tokens], true where a token (row) may look at another (column). The result equals running each row by itself.

    ``sizes``: instead of the mask the sizes that ``attention.branched_attention`` takes.
    """
    import torch

    size = max(pack.size for pack in packs)
    ids = torch.full((len(packs), size), pad, dtype=torch.long)
    positions = torch.zeros((len(packs), size), dtype=torch.long)
    labels = torch.full((len(packs), size), IGNORED, dtype=torch.long)
    owner = torch.full((len(packs), size), -1, dtype=torch.long)  # 0: prefix, else the branch
    for i, pack in enumerate(packs):
        at = len(pack.prefix)
        ids[i, :at] = torch.tensor(pack.prefix, dtype=torch.long)
        positions[i, :at] = torch.arange(at)
        owner[i, :at] = 0
        for number, (branch, start) in enumerate(zip(pack.branches, pack.starts, strict=True), start=1):
            end = at + len(branch)
            ids[i, at:end] = torch.tensor(branch, dtype=torch.long)
            positions[i, at:end] = len(pack.prefix) + torch.arange(len(branch))
            labels[i, at + start : end] = ids[i, at + start : end]
            owner[i, at:end] = number
            at = end
    batch = {"input_ids": ids, "position_ids": positions, "labels": labels}
    if sizes:
        most = max(len(pack.branches) for pack in packs)
        layout = torch.zeros((len(packs), 1, 1, most + 1), dtype=torch.long)
        for i, pack in enumerate(packs):
            layout[i, 0, 0, : len(pack.branches) + 1] = torch.tensor([len(pack.prefix), *map(len, pack.branches)])
        return {**batch, "attention_mask": layout}
    looks, seen = owner[:, :, None], owner[:, None, :]
    order = torch.arange(size)
    mask = ((seen == looks) | ((seen == 0) & (looks > 0))) & (order[:, None] >= order[None, :])
    mask |= torch.eye(size, dtype=torch.bool)  # padding looks at itself: a row without any gives NaN
    return {**batch, "attention_mask": mask[:, None]}
