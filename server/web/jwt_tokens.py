"""JWTs as keys to the HTTP face, held more strictly than FastMCP's verifier does by itself."""

from __future__ import annotations

import logging
import math
import time

from fastmcp.server.auth import AccessToken
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.utilities.auth import decode_jwt_header

from toolscout.settings import JWT_ALGORITHMS

logger = logging.getLogger(__name__)

LEEWAY_SECONDS = 60.0
"""How far the issuer's clock may be ahead of ours where a token says from when on it holds."""


class StrictJWT(JWTVerifier):
    """A token needs an end (``exp``), and one that holds only later (``nbf``) does not hold yet."""

    _said_algorithm = False

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token's content, None where it does not let anybody in."""
        try:
            found = await super().verify_token(token)
        except OverflowError:  # its end is Infinity, which JSON as Python reads it has
            return None
        if found is None:
            self._say_algorithm(token)
            return None
        claims = found.claims or {}
        if found.expires_at is None:
            logger.warning("A token without an end (exp) was refused: it would hold for ever.")
            return None
        if "nbf" in claims and not _has_come(claims["nbf"]):
            return None
        return found

    def _say_algorithm(self, token: str) -> None:
        """Say once that tokens come with another algorithm than is set; the key set alone does not tell."""
        if self._said_algorithm:
            return
        try:
            written = decode_jwt_header(token).get("alg")
        except Exception:  # whatever a stranger sends: it is refused anyway
            return
        # The known names alone: anything else is a stranger's text.
        if written != self.algorithm and written in JWT_ALGORITHMS:
            self._said_algorithm = True
            logger.warning(
                "A token signed by %s was refused: TOOLSCOUT_AUTH_ALGORITHM says %s.", written, self.algorithm
            )


def _has_come(moment: object) -> bool:
    """Whether a time in seconds since 1970 is past, but for the clocks' difference."""
    if isinstance(moment, bool) or not isinstance(moment, (int, float)) or not math.isfinite(moment):
        return False
    return moment <= time.time() + LEEWAY_SECONDS
