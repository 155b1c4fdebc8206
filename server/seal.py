"""The seal on ``requestState``: what a client brings back with an answer is what this installation gave it.

FastMCP binds the state to the request, to who is authenticated and to a time; here is only the key. Its own would live
as long as a process, and an answer may reach another one: behind a balancer, or after a restart.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from toolscout.errors import StorageError
from toolscout.files import replace_file

if TYPE_CHECKING:
    from mcp.server.request_state import AESGCMRequestStateCodec

logger = logging.getLogger(__name__)

_FILE = "state.key"
_BYTES = 32
_LOCK_SECONDS = 10.0


class HomeSeal:
    """Seals with the key of a home folder, which is made when it is first needed (the SDK's ``RequestStateCodec``)."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._codec: AESGCMRequestStateCodec | None = None

    def seal(self, payload: bytes) -> str:
        """An opaque token that holds ``payload``."""
        return self._opened().seal(payload)

    def unseal(self, token: str) -> bytes:
        """What a token holds. Raises InvalidRequestState if it was not made with this key."""
        return self._opened().unseal(token)

    def _opened(self) -> AESGCMRequestStateCodec:
        if self._codec is None:
            from mcp.server.request_state import AESGCMRequestStateCodec

            self._codec = AESGCMRequestStateCodec([home_key(self._home / _FILE)])
        return self._codec


def home_key(path: Path) -> bytes:
    """The key, the same for all processes on one home; where the home cannot be written, one for this process alone."""
    try:
        with FileLock(f"{path}.lock", timeout=_LOCK_SECONDS):
            if not path.exists():
                replace_file(path, secrets.token_bytes(_BYTES), mode=0o600)
            key = path.read_bytes()
        if len(key) >= _BYTES:
            return key
        logger.warning("%s is no key: delete it, and a new one will be made.", path)
    except (OSError, Timeout, StorageError) as error:
        logger.warning("%s cannot be used: %s", path, error)
    return secrets.token_bytes(_BYTES)
