"""How the person behind a call is asked, in either protocol era; what is asked is the business of others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolscout.records import JsonObject


class CannotAsk(Exception):
    """The client said that it could ask, and then did not."""


@dataclass(frozen=True)
class Asking:
    """How the person behind a call can be asked; made only for clients that have declared form elicitation.

    ``during`` takes the parameters of ``elicitation/create``, asks while the call waits, and gives the answer or raises
    `CannotAsk`; without it the answer comes with a later call. ``installs``: whether installations may be asked about.
    """

    during: Callable[[JsonObject], Awaitable[object]] | None = None
    installs: bool = True


def content_of(response: object) -> Mapping[str, Any] | None:
    """The content of an accepted form, in whatever way the answer came; None for any other answer."""
    answer = _answer(response)
    content = answer.get("content") if answer.get("action") == "accept" else None
    return content if isinstance(content, Mapping) else None


def unanswered(response: object) -> bool:
    """Whether nobody said yes or no: the form was closed, time ran out, or the client has nobody to show it to."""
    return _answer(response).get("action") not in ("accept", "decline")


def _answer(response: object) -> Mapping[str, Any]:
    if hasattr(response, "model_dump"):
        response = response.model_dump(by_alias=True, mode="json", exclude_none=True)
    return response if isinstance(response, Mapping) else {}
