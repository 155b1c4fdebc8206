"""The one small interface to a language model, in process or behind HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from toolscout.errors import ModelError
from toolscout.prompt import Style
from toolscout.records import JsonObject

Messages = Sequence[dict[str, str]]


class ContextOverflow(ModelError):
    """The prompt is longer than the model's context. ``ratio`` is how much of it would fit (0 to 1)."""

    def __init__(self, message: str, ratio: float) -> None:
        super().__init__(message, "Ask with fewer candidates, or raise TOOLSCOUT_MODEL_CONTEXT.")
        self.ratio = ratio


@dataclass(frozen=True)
class Token:
    """One generated token: its text, natural-log probability, and the likeliest tokens at its place."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Generation:
    """What a model wrote. ``tokens`` is empty where the model gives no probabilities."""

    text: str
    tokens: tuple[Token, ...] = ()
    complete: bool = True
    """False if it was cut off at ``max_tokens``."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float | None = None
    """From the request to the first token, where the model tells."""


class Backend(Protocol):
    """A model. One instance serves the whole process; ``generate`` may be called concurrently."""

    name: str
    """What is shown as the model's name."""
    prefills: bool
    """True if ``prefix`` and ``grammar`` are honoured; else ``schema`` is what constrains the answer."""
    queues: bool
    """True if it answers one request at a time, with one cached prompt: a task then keeps its turn to the end."""

    chooses: bool
    """True if it chooses among the candidates itself; else the encoder does, and it is shown the chosen tool alone."""
    none_at: float
    """P(none) from which it is believed, where it chooses, that no candidate fits."""
    style: Style
    """The rendering of tools that it was trained on."""
    budget: int
    """Most characters of a prompt that it was trained on; 0: as many as its context takes."""

    async def prepare(self) -> None:
        """Find out what is only known by asking, ``prefills``, ``style`` and ``budget`` among it; later calls are free.

        To be awaited before a prompt is rendered. :raises ModelError: the model is missing or unreachable.
        """
        ...

    async def generate(
        self,
        messages: Messages,
        *,
        prefix: str = "",
        grammar: str = "",
        schema: JsonObject | None = None,
        max_tokens: int = 512,
        top: int = 0,
    ) -> Generation:
        """Greedy continuation of the chat.

        :param prefix: the start of the answer, already decided; not part of the returned text.
        :param grammar: GBNF that what follows ``prefix`` must match.
        :param schema: JSON Schema that the whole answer should match.
        :param top: how many alternatives to report at each token.
        :raises ModelError: the model is missing, unreachable, or answered nonsense.
        :raises ContextOverflow: the prompt does not fit.
        """
        ...

    async def close(self) -> None:
        """Free the model or the connection."""
        ...
