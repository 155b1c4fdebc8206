"""Logging in at a remote server with the browser: only where a person is there who has asked for something."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from fastmcp.client.auth import OAuth

from toolscout.errors import NotAllowed

SECONDS = 300.0
"""How long a person has for it."""


class LoginNeeded(NotAllowed):
    """A remote server wants a login, and nobody is asked for one now."""

    kind = "upstream_unauthorized"

    def __init__(self, upstream: str) -> None:
        super().__init__(
            f"'{upstream}' wants a login in the browser.",
            hint=f"A person has to run: toolscout login {upstream}",
        )


class Login(OAuth):
    """FastMCP's OAuth. It opens a browser only with ``ask``; else a login that is due raises LoginNeeded at once."""

    def __init__(self, upstream: str, url: str, state: Path, *, ask: bool) -> None:
        super().__init__(url, client_name="Toolscout", token_storage=_token_store(state), callback_timeout=SECONDS)
        self._upstream = upstream
        self._ask = ask

    async def redirect_handler(self, authorization_url: str) -> None:
        """Send the person to the login, with an address that can be copied: in one line."""
        if not self._ask:
            raise LoginNeeded(self._upstream)
        logging.getLogger(OAuth.__module__).setLevel(logging.WARNING)  # it breaks the address over many lines
        print(f"Log in to {self._upstream} in the browser that opens, or open this address:", file=sys.stderr)
        print(authorization_url, file=sys.stderr, flush=True)
        await super().redirect_handler(authorization_url)


def _token_store(state: Path) -> Any:
    """Tokens survive a restart in a file only the owner can read; in memory where that is impossible."""
    try:
        from key_value.aio.stores.filetree import (
            FileTreeStore,
            FileTreeV1CollectionSanitizationStrategy,
            FileTreeV1KeySanitizationStrategy,
        )

        folder = state / "oauth"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        return FileTreeStore(
            data_directory=folder,
            # The keys are URLs, which are no file names.
            key_sanitization_strategy=FileTreeV1KeySanitizationStrategy(folder),
            collection_sanitization_strategy=FileTreeV1CollectionSanitizationStrategy(folder),
        )
    except (ImportError, OSError):
        return None
