"""One request over HTTP and its answer: the SDK's errors do not say which status that had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx2
from mcp.shared.exceptions import MCPError

from toolscout.server.upstreams.answer import Answer


class HttpRefused(MCPError):
    """A request was answered with an HTTP status of 400 or above."""

    def __init__(self, error: MCPError, answer: Answer) -> None:
        super().__init__(error.error.code, error.error.message, error.error.data)
        self.status = answer.status
        self.why = answer.why(error.error.message)
        self.has_login = answer.has_login
        self.in_session = answer.in_session


# The SDK sends each request in a copy of its caller's context, so the hook on answers sees which one it is for.
_CURRENT: ContextVar[list[Answer] | None] = ContextVar("exchange", default=None)


def note(response: httpx2.Response) -> Answer:
    """Note an answer with the request that it is for; the hook on every answer calls it."""
    challenge = response.headers.get("www-authenticate", "")
    answer = Answer(response.status_code, challenge, "mcp-session-id" in response.request.headers)
    answers = _CURRENT.get()
    if answers is not None and response.request.method == "POST":
        answers.append(answer)
    return answer


@contextmanager
def exchange() -> Iterator[None]:
    """Inside it a refusal raises HttpRefused where it came with a status."""
    answers: list[Answer] = []
    token = _CURRENT.set(answers)
    try:
        yield
    except MCPError as error:
        if answers and answers[-1].status >= 400:
            raise HttpRefused(error, answers[-1]) from None
        raise
    finally:
        _CURRENT.reset(token)
