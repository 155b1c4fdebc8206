"""Sampling many answers to prompts that begin alike: what they share is computed once, and read once at every step.

Training rows of a group have the whole system message in common, and a reinforcement step wants several answers to
each. Plain batched generation computes and keeps the same thousand tokens for each of them. Here the prompts go
through the model as one pack (``tokens.Pack``), and then all answers grow together: one pass a token, in which each
looks at the shared prefix, at its own request and at what it has written. The probabilities are those of the plain
computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toolscout.finetune.caller import attention
from toolscout.finetune.caller.collate import collate
from toolscout.finetune.caller.tokens import Pack

NAME = "toolscout_rollout"


@dataclass
class _Branches:
    """Keys and values while answers grow, a pair of tensors a layer.

    ``prefix`` [heads, tokens, dim] is everyone's, ``own`` [answers, heads, room, dim] each answer's request and text,
    of which ``lengths`` [answers] are filled.
    """

    prefix: list[tuple[Any, Any]]
    own: list[tuple[Any, Any]]
    lengths: Any

    def keep(self, alive: Any) -> None:
        """Go on with these answers only."""
        self.own = [(k[alive], v[alive]) for k, v in self.own]
        self.lengths = self.lengths[alive]


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    samples: int,
    *,
    max_new: int,
    temperature: float,
    end: Sequence[int],
    seed: int,
) -> list[list[list[int]]]:
    """``samples`` answers (token ids, the end token with them) for each prompt (token ids that begin alike).

    ``temperature`` 0 takes the likeliest token each time. Sampling is from the whole distribution, so that the
    probabilities that training computes are those that were sampled from. The same seed gives the same answers.
    An answer that reaches ``max_new`` tokens has no end token.
    """
    import torch

    device = next(model.parameters()).device
    draw = torch.Generator(device=device).manual_seed(seed)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return _sample(model, prompts, samples, max_new, temperature, end, draw, device)
    finally:
        model.train(was_training)


def shared_length(prompts: Sequence[Sequence[int]]) -> int:
    """How many first tokens all prompts have in common; each keeps one of its own."""
    most = min(map(len, prompts)) - 1
    first = prompts[0]
    return next((i for i in range(most) if any(p[i] != first[i] for p in prompts)), most)


def _sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    samples: int,
    max_new: int,
    temperature: float,
    end: Sequence[int],
    draw: Any,
    device: Any,
) -> list[list[list[int]]]:
    import torch

    branches, logits = _read(model, prompts, samples, max_new, device)
    count = len(prompts) * samples
    logits = logits.repeat_interleave(samples, 0)
    positions = torch.tensor([len(p) for p in prompts], device=device).repeat_interleave(samples)
    alive = torch.arange(count, device=device)
    written: list[list[int]] = [[] for _ in range(count)]
    ends = torch.tensor(list(end), device=device)
    with attending(model, NAME):
        for step in range(max_new):
            token = _choose(logits, temperature, draw)
            for i, value in zip(alive.tolist(), token.tolist(), strict=True):
                written[i].append(value)
            going = ~torch.isin(token, ends)
            if step + 1 == max_new or not going.any():
                break
            if not going.all():
                left = going.nonzero().squeeze(1)
                branches.keep(left)
                alive, token, positions = alive[left], token[left], positions[left]
            logits = model(
                input_ids=token[None],
                position_ids=positions[None],
                attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
                use_cache=False,
                branches=branches,
            ).logits[0]
            branches.lengths += 1
            positions = positions + 1
    return [written[i : i + samples] for i in range(0, count, samples)]


def _read(
    model: Any, prompts: Sequence[Sequence[int]], samples: int, max_new: int, device: Any
) -> tuple[_Branches, Any]:
    """The prompts' keys and values, ready to be written on; and the logits [prompts, tokens] behind each prompt."""
    import torch
    from transformers import DynamicCache

    shared = shared_length(prompts)
    tails = [list(p[shared:]) for p in prompts]
    pack = Pack(list(prompts[0][:shared]), tails, [len(t) for t in tails])
    batch = {k: v.to(device) for k, v in collate([pack], 0, sizes=True).items() if k != "labels"}
    sizes = torch.tensor([len(t) for t in tails], device=device)
    last = shared + sizes.cumsum(0) - 1
    cache = DynamicCache()
    with attending(model, attention.register()):
        logits = model(**batch, past_key_values=cache, use_cache=True, logits_to_keep=last).logits[0]
    room = int(sizes.max()) + max_new
    prefix, own = [], []
    for layer in cache.layers:
        pair = []
        for states in (layer.keys[0], layer.values[0]):
            heads, _, dim = states.shape
            grown = states.new_zeros(len(prompts), heads, room, dim)
            for i, part in enumerate(states[:, shared:].split(sizes.tolist(), 1)):
                grown[i, :, : part.shape[1]] = part
            pair.append((states[:, :shared].contiguous(), grown.repeat_interleave(samples, 0)))
        prefix.append((pair[0][0], pair[1][0]))
        own.append((pair[0][1], pair[1][1]))
    return _Branches(prefix, own, sizes.repeat_interleave(samples)), logits


def _choose(logits: Any, temperature: float, draw: Any) -> Any:
    import torch

    if temperature == 0:
        return logits.argmax(-1)
    odds = torch.softmax(logits.float() / temperature, -1)
    return torch.multinomial(odds, 1, generator=draw).squeeze(1)


@contextmanager
def attending(model: Any, name: str) -> Iterator[None]:
    """The model with another attention function for the time being."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, growing_attention)
    config = model.config
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


def growing_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: Any = None,
    branches: _Branches | None = None,
    **rest: Any,
) -> tuple[Any, None]:
    """One new token of each answer, side by side: ``query`` [1, heads, answers, dim], ``key`` and ``value`` likewise
    with their own heads; they are put where the answers' keys and values are kept.

    Returns [1, answers, heads, dim].
    """
    import torch

    assert branches is not None
    (prefix_k, prefix_v), (own_k, own_v) = branches.prefix[module.layer_idx], branches.own[module.layer_idx]
    lengths = branches.lengths
    count, heads, _, dim = own_k.shape
    each = torch.arange(count, device=query.device)
    own_k[each, :, lengths], own_v[each, :, lengths] = key[0].transpose(0, 1), value[0].transpose(0, 1)
    filled = int(lengths.max()) + 1
    query = query[0].unflatten(0, (heads, -1))  # [heads, query heads of each, answers, dim]
    groups = query.shape[1]
    scale = scaling if scaling is not None else dim**-0.5
    shared = (query.flatten(1, 2) @ prefix_k.transpose(1, 2)).view(heads, groups, count, -1)
    mine = query.permute(2, 0, 1, 3) @ own_k[:, :, :filled].transpose(2, 3)  # [answers, heads, groups, filled]
    ahead = torch.arange(filled, device=query.device) > lengths[:, None]
    mine = mine.masked_fill(ahead[:, None, None], float("-inf")).permute(1, 2, 0, 3)
    weights = torch.softmax(torch.cat([shared, mine], -1).float() * scale, -1).to(value.dtype)
    shared, mine = weights.split([prefix_k.shape[1], filled], -1)
    out = (shared.flatten(1, 2) @ prefix_v).view(heads, groups, count, dim).permute(2, 0, 1, 3)
    out = out + mine.permute(2, 0, 1, 3) @ own_v[:, :, :filled]
    return out.flatten(1, 2)[None], None
