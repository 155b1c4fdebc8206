"""Counting the tokens of an answer as a language model would.

The tokenizer is, in this order: the ``tokenizer.json`` that the caller names; SmolLM2's byte-level BPE (49,152 tokens),
read out of its weights where they are installed (``toolscout model pull smollm2-135m``); else characters divided by
four. SmolLM2's counts run a little above those of models with larger vocabularies, so they are on the safe side.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from toolscout.errors import BadInput
from toolscout.server.models import ModelStore
from toolscout.settings import Settings

CHARACTERS_A_TOKEN = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


class TokenCounter:
    """Counts tokens; ``name`` says with what."""

    def __init__(self, name: str, count: Callable[[str], int]) -> None:
        self.name = name
        self._count = count

    def __call__(self, text: str) -> int:
        return self._count(text)


def make_counter(tokenizer: Path | None = None) -> TokenCounter:
    """The best counter there is here. Raises BadInput if ``tokenizer`` is no ``tokenizer.json``."""
    if tokenizer is not None:
        from tokenizers import Tokenizer

        try:
            loaded = Tokenizer.from_file(str(tokenizer))
        except Exception as error:
            raise BadInput(
                f"The tokenizer {tokenizer} cannot be read: {error}.",
                "Give a tokenizer.json of the tokenizers library.",
            ) from None
        return TokenCounter(tokenizer.stem, lambda text: len(loaded.encode(text, add_special_tokens=False).ids))
    model = next((m for m in ModelStore(Settings()).installed() if m.name == "smollm2-135m"), None)
    if model is not None:
        bpe = _gguf_bpe(model.path)
        return TokenCounter("SmolLM2 BPE", lambda text: len(bpe.encode(text).ids))
    return TokenCounter("characters / 4", lambda text: -(-len(text) // CHARACTERS_A_TOKEN))


def _gguf_bpe(path: Path) -> Any:
    """The byte-level BPE in a GGUF file's metadata, with SmolLM2's pre-tokenizer: digits one by one, GPT-2 words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    wanted = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
    with path.open("rb") as stream:
        metadata = _read_metadata(stream, wanted)
    merges = [tuple(merge.split(" ", 1)) for merge in metadata[wanted[1]]]
    vocabulary = {token: i for i, token in enumerate(metadata[wanted[0]])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def _read_metadata(stream: BinaryIO, wanted: tuple[str, ...]) -> dict[str, Any]:
    magic, _version, _tensors, pairs = struct.unpack("<4sIQQ", stream.read(24))
    if magic != b"GGUF":
        raise BadInput("The model's weights are not a GGUF file.", "Pull it again: toolscout model pull smollm2-135m")
    found: dict[str, Any] = {}
    for _ in range(pairs):
        key = _read_value(stream, _STRING)
        value = _read_value(stream, _read_scalar(stream, "I"))
        if key in wanted:
            found[key] = value
    return found


def _read_scalar(stream: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", stream.read(struct.calcsize(code)))[0]


def _read_value(stream: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return stream.read(_read_scalar(stream, "Q")).decode("utf-8", "replace")
    if kind == _ARRAY:
        inner = _read_scalar(stream, "I")
        length = _read_scalar(stream, "Q")
        return [_read_value(stream, inner) for _ in range(length)]
    return _read_scalar(stream, _SCALARS[kind])
