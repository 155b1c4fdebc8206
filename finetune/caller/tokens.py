"""Rows as tokens: the very tokens that serving reads and writes, with the loss on the answer alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from toolscout.errors import BadInput
from toolscout.synth.call_rows import CallRow

IGNORED = -100


@dataclass(frozen=True)
class TokenRow:
    """One row: ``ids`` of prompt and answer with its end token; the answer starts at ``start``."""

    group: int
    ids: list[int]
    start: int


@dataclass(frozen=True)
class Pack:
    """Rows that share their first tokens: ``prefix``, then each row's own, which sees the prefix and itself only."""

    prefix: list[int]
    branches: list[list[int]]
    starts: list[int]
    """Where the answer starts within each branch."""

    @property
    def size(self) -> int:
        """Tokens that are computed."""
        return len(self.prefix) + sum(map(len, self.branches))


def chat_text(tokenizer: Any, messages: Sequence[dict[str, str]]) -> str:
    """The prompt as the model's own chat template writes it, up to where the answer starts."""
    return str(
        tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=False)
    )


def tokenize(rows: Sequence[CallRow], tokenizer: Any) -> list[TokenRow]:
    """Prompt and answer in one go, as llama.cpp reads a prompt with the answer's beginning."""
    prompts = [chat_text(tokenizer, row.messages) for row in rows]
    texts = [p + row.answer + tokenizer.eos_token for p, row in zip(prompts, rows, strict=True)]
    out = []
    for begin in range(0, len(rows), 256):
        chunk = slice(begin, begin + 256)
        whole = tokenizer(texts[chunk], add_special_tokens=False)["input_ids"]
        heads = tokenizer(prompts[chunk], add_special_tokens=False)["input_ids"]
        for row, ids, head in zip(rows[chunk], whole, heads, strict=True):
            if ids[: len(head)] != head:
                raise BadInput(
                    f"Row {row.id}: this model's tokens run across the start of the answer.",
                    "Its chat template must end in a token of its own.",
                )
            out.append(TokenRow(row.group, list(ids), len(head)))
    return out


def make_packs(rows: Iterable[TokenRow], *, max_tokens: int, share: bool) -> tuple[list[Pack], int]:
    """Packs in the rows' order, and how many rows were too long.

    With ``share`` consecutive rows of one group go together as long as they fit; else each row is a pack.
    """
    packs: list[Pack] = []
    left = 0
    pending: list[TokenRow] = []

    def flush() -> None:
        if pending:
            packs.append(_pack(pending))
            pending.clear()

    for row in rows:
        if len(row.ids) > max_tokens:
            left += 1
            continue
        if pending and (not share or row.group != pending[0].group or _pack([*pending, row]).size > max_tokens):
            flush()
        pending.append(row)
    flush()
    return packs, left


def _pack(rows: Sequence[TokenRow]) -> Pack:
    first = rows[0]
    shared = first.start - 1 if len(rows) > 1 else 0
    for row in rows[1:]:
        limit = min(shared, row.start - 1)
        shared = next((i for i in range(limit) if row.ids[i] != first.ids[i]), limit)
    return Pack(first.ids[:shared], [r.ids[shared:] for r in rows], [r.start - shared for r in rows])


def length_stats(rows: Sequence[TokenRow], packs: Sequence[Pack]) -> dict[str, Any]:
    """Tokens of prompts, answers and packs: median, 90th percentile, most; and what sharing saves."""
    each, packed = sum(len(r.ids) for r in rows), sum(p.size for p in packs)
    return {
        "rows": len(rows),
        "packs": len(packs),
        "prompt": _spread([r.start for r in rows]),
        "answer": _spread([len(r.ids) - r.start for r in rows]),
        "pack": _spread([p.size for p in packs]),
        "tokens": each,
        "tokens_computed": packed,
        "tokens_computed_a_row": round(packed / max(1, sum(len(p.branches) for p in packs)), 1),
    }


def _spread(values: Sequence[int]) -> dict[str, int]:
    ordered = sorted(values) or [0]
    return {"p50": ordered[len(ordered) // 2], "p90": ordered[int(len(ordered) * 0.9)], "max": ordered[-1]}


def by_length(packs: Sequence[Pack], batch: int, window: int) -> list[Pack]:
    """Packs of like length next to each other within windows of ``window`` batches, the batches in a fixed mixed
    order: less padding, same rows. Deterministic. Batches of one have no padding and stay as they are."""
    if batch < 2:
        return list(packs)
    out: list[Pack] = []
    for begin in range(0, len(packs), batch * window):
        part = sorted(packs[begin : begin + batch * window], key=lambda p: p.size)
        batches = [part[i : i + batch] for i in range(0, len(part), batch)]
        batches = batches[::2] + batches[1::2][::-1]
        out += [p for b in batches for p in b]
    return out
