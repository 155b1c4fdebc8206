"""Attention over packs that computes no more than they need, for CPUs.

One masked call computes every token against every other, of which a pack needs about half. Here the prefix attends
causally to itself, and the branches, side by side in batches of like length, each to the prefix and to itself. The
result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

NAME = "toolscout_branched"


def register() -> str:
    """Make the function known to transformers; returns the name for ``attn_implementation``."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, branched_attention)
    return NAME


def branched_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None, **rest: Any
) -> tuple[Any, None]:
    """``query`` [packs, heads, tokens, dim], ``key`` and ``value`` with their own heads; ``attention_mask`` is no mask
    but int64 [packs, 1, 1, branches + 1], the sizes of prefix and branches (0: none) as ``collate`` gives them.

    Returns [packs, tokens, heads, dim].
    """
    import torch

    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    outs = [
        _one(query[i : i + 1], key[i : i + 1], value[i : i + 1], sizes, scaling)
        for i, sizes in enumerate(attention_mask[:, 0, 0].tolist())
    ]
    return torch.cat(outs).transpose(1, 2).contiguous(), None


def _one(query: Any, key: Any, value: Any, sizes: list[int], scaling: Any) -> Any:
    import torch
    from torch.nn.functional import pad, scaled_dot_product_attention

    prefix, branches = sizes[0], [n for n in sizes[1:] if n]
    left = query.shape[2] - prefix - sum(branches)
    # split and not slices: the gradient of each slice would be as large as the whole
    queries, keys, values = (x.split([prefix, *branches, left], 2) for x in (query, key, value))
    out = [queries[0]] * len(queries)
    out[-1] = torch.zeros_like(queries[-1])
    if prefix:
        out[0] = scaled_dot_product_attention(queries[0], keys[0], values[0], is_causal=True, scale=scaling)
    for some in halves(tuple(branches), prefix):
        longest = max(branches[i] for i in some)

        def side_by_side(x: Any, some: tuple[int, ...] = some, longest: int = longest) -> Any:
            parts = (x[i + 1] for i in some)
            return torch.cat([pad(p, (0, 0, 0, longest - p.shape[2])) if p.shape[2] < longest else p for p in parts])

        q, k, v = (side_by_side(x) for x in (queries, keys, values))
        k, v = (torch.cat([x[0].expand(len(some), -1, -1, -1), own], 2) for x, own in ((keys, k), (values, v)))
        seen = torch.ones(longest, prefix + longest, dtype=torch.bool, device=query.device).tril(prefix)
        found = scaled_dot_product_attention(q, k, v, attn_mask=seen[None, None], scale=scaling)
        for i, own in zip(some, found.split(1), strict=True):
            out[i + 1] = own[:, :, : branches[i]] if branches[i] < longest else own
    return torch.cat(out, 2)


@lru_cache(maxsize=64)
def halves(branches: tuple[int, ...], prefix: int) -> tuple[tuple[int, ...], ...]:
    """The branches in one batch or two, short and long ones, so that padding costs least."""
    order = sorted(range(len(branches)), key=lambda i: branches[i])

    def cost(some: Sequence[int]) -> int:
        longest = branches[some[-1]] if some else 0
        return len(some) * longest * (prefix + longest)

    cut = min(range(len(order)), key=lambda n: cost(order[:n]) + cost(order[n:]))
    return tuple(tuple(some) for some in (order[:cut], order[cut:]) if some)
