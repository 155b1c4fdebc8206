"""Errors a person or a model can act on: one sentence, what to do, and a documented exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ToolscoutError(Exception):
    """Base of all expected failures.

    ``str(error)`` is one clear sentence; ``hint`` says what to do next. The command line prints both
    and exits with ``exit_code``; the server turns them into a tool error.
    """

    exit_code = 1
    kind = "error"
    """Why, as one word for logs, metrics and traces; an instance may say it more closely."""

    def __init__(self, message: str, hint: str = "", *, kind: str = "", choices: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.choices = choices
        """What may have been meant, for programs."""
        if kind:
            self.kind = kind

    def sentence(self) -> str:
        """Message and hint as one line of text."""
        return f"{self} {self.hint}".strip()


class BadInput(ToolscoutError):
    """What the caller gave cannot be used: a malformed file, an unknown option value."""

    exit_code = 2
    kind = "bad_input"


class NotFound(ToolscoutError):
    """A named thing (tool, server, file, model) does not exist."""

    exit_code = 3
    kind = "not_found"


class InvalidArguments(ToolscoutError):
    """A call's arguments do not match the tool's input schema."""

    exit_code = 4
    kind = "invalid_arguments"


class UpstreamError(ToolscoutError):
    """An upstream server could not be started, did not answer, or broke the protocol."""

    exit_code = 5
    kind = "upstream_error"


class ModelError(ToolscoutError):
    """The call generator is missing, unreachable or answered nonsense."""

    exit_code = 6
    kind = "model_error"


class NotAllowed(ToolscoutError):
    """Refused on purpose: quarantined, needs approval, needs a key, hash mismatch."""

    exit_code = 7
    kind = "not_allowed"


class StorageError(ToolscoutError):
    """The catalogue or the index cannot be read or written."""

    exit_code = 8
    kind = "storage_error"


class Interrupted(ToolscoutError):
    """Ended by Ctrl-C, by a command that can say what is kept of its work."""

    exit_code = 130
    kind = "interrupted"
