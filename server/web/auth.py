"""Who may come in over HTTP: what has to be set where strangers can reach the port, and how a token is verified."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from toolscout.errors import BadInput, NotAllowed

if TYPE_CHECKING:
    from fastmcp.server.auth import AuthProvider, TokenVerifier

    from toolscout.settings import Settings


def check_access(settings: Settings, host: str) -> None:
    """Raise NotAllowed where anybody could come in from elsewhere.

    A public name counts as elsewhere: whoever sets one has a proxy that passes on what comes from there.
    """
    if is_loopback(host) and all(map(_names_loopback, public_hosts(settings))):
        return
    where = host if not is_loopback(host) else f"{host} behind a public name"
    if not (settings.auth_jwks or settings.auth_token):
        raise NotAllowed(
            f"Refusing to listen on {where} without authentication.",
            "Set TOOLSCOUT_AUTH_TOKEN (or TOOLSCOUT_AUTH_JWKS), or listen on 127.0.0.1 with neither "
            "TOOLSCOUT_PUBLIC_URL nor TOOLSCOUT_ALLOWED_HOSTS.",
        )
    wanted = {"TOOLSCOUT_AUTH_ISSUER": settings.auth_issuer, "TOOLSCOUT_AUTH_AUDIENCE": settings.auth_audience}
    if settings.auth_jwks and (missing := [name for name, value in wanted.items() if not value]):
        raise NotAllowed(
            f"Refusing to listen on {where} for any token of that key set, whoever made it and for whatever service.",
            f"Set {' and '.join(missing)} to what the tokens for this server name.",
        )


def public_hosts(settings: Settings) -> list[str]:
    """The names by which clients reach the server from elsewhere, as Host headers have them."""
    return [*settings.allowed_hosts, *([urlsplit(settings.public_url).netloc] if settings.public_url else [])]


def is_loopback(host: str) -> bool:
    """Whether listening on ``host`` stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names_loopback(host: str) -> bool:
    """Whether a Host header names this machine itself."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def make_auth(settings: Settings) -> AuthProvider | None:
    """Bearer token or JWT verification as the settings ask for; None when they ask for none."""
    if settings.auth_jwks:
        from toolscout.server.web.jwt_tokens import StrictJWT

        verifier = StrictJWT(
            jwks_uri=settings.auth_jwks,
            issuer=settings.auth_issuer or None,
            audience=settings.auth_audience or None,
            algorithm=settings.auth_algorithm,
        )
        return _described(verifier, settings)
    if not settings.auth_token:
        return None
    from fastmcp.server.auth import AccessToken, TokenVerifier

    expected = settings.auth_token.encode()

    class BearerToken(TokenVerifier):
        async def verify_token(self, token: str) -> AccessToken | None:
            if hmac.compare_digest(token.encode(), expected):
                return AccessToken(token=token, client_id="bearer", scopes=[])
            return None

    return BearerToken()


def _described(verifier: TokenVerifier, settings: Settings) -> AuthProvider:
    """With a public URL and an issuer also the protected resource metadata of RFC 9728, which refusals point to."""
    if not settings.public_url or not settings.auth_issuer:
        return verifier
    from fastmcp.server.auth import RemoteAuthProvider
    from pydantic import AnyHttpUrl, ValidationError

    try:
        issuer, base = AnyHttpUrl(settings.auth_issuer), AnyHttpUrl(settings.public_url)
    except ValidationError:
        raise BadInput(
            "TOOLSCOUT_PUBLIC_URL and TOOLSCOUT_AUTH_ISSUER have to be http or https URLs.",
            "Write for example https://tools.example.com.",
        ) from None
    return RemoteAuthProvider(verifier, [issuer], base, resource_name="Toolscout")
