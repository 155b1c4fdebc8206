"""What the HTTP answer of a remote server says of a refusal."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SDK_MESSAGE = "Server returned an error response"
"""What the SDK says where the server said nothing."""
_REASONS = re.compile(r'\b(?:error|error_description|scope)="([^"]*)"')


@dataclass(frozen=True)
class Answer:
    """Its status, 0 while there is none, its ``WWW-Authenticate``, and whether the request named a session."""

    status: int = 0
    challenge: str = ""
    in_session: bool = False

    @property
    def has_login(self) -> bool:
        """Whether it says where a person can log in (RFC 9728)."""
        return "resource_metadata" in self.challenge

    def why(self, message: str) -> str:
        """The server's words for its refusal: its message, and what the challenge says."""
        said = [] if message in ("", _SDK_MESSAGE) else [message]
        return ", ".join(dict.fromkeys(said + _REASONS.findall(self.challenge)))
