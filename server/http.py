"""Serving over streamable HTTP: uvicorn, a bearer token or JWT, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolscout import __version__
from toolscout.errors import BadInput, NotAllowed, ToolscoutError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastmcp.server.auth import AuthProvider, TokenVerifier
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from toolscout.server.engine import Engine
    from toolscout.settings import Settings

    Page = Callable[[Request], Awaitable[Response]]

PATH = "/mcp"
_HEALTH_WAITS_SECONDS = 1.0
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def run_http(address: str, workers: int = 1) -> None:
    """Serve on ``HOST:PORT`` until interrupted, with so many processes (see `workers`).

    Raises:
        BadInput: the address is not of that form, or taken.
        NotAllowed: it reaches beyond loopback and no authentication is configured.
    """
    import uvicorn

    from toolscout.server.engine import Engine
    from toolscout.server.limits import raise_file_limit
    from toolscout.server.logs import configure_logging
    from toolscout.server.serving_run import free_port
    from toolscout.settings import load_settings

    host, port = parse_address(address)
    settings = load_settings()
    configure_logging(settings)
    check_access(settings, host)
    if port:
        free_port(host, port, "Choose another port: toolscout serve --http HOST:PORT")
    if workers != 1:
        from toolscout.server.workers import run_workers

        run_workers(host, port, workers)
        return
    raise_file_limit()
    application = make_http_app(Engine(settings, serving=True), settings, host)
    config = uvicorn.Config(application, host=host, port=port, log_level="warning", lifespan="on", **bounds())
    configure_logging(settings)  # uvicorn has put handlers of its own in
    uvicorn.Server(config).run()


def bounds() -> dict[str, Any]:
    """uvicorn's options that bound what clients can take, and how long the server waits for them when it ends."""
    from toolscout.server.http_limits import CONNECTIONS, PatientProtocol

    return {"http": PatientProtocol, "limit_concurrency": CONNECTIONS, "timeout_graceful_shutdown": 5}


def parse_address(address: str) -> tuple[str, int]:
    """``HOST:PORT``, ``:PORT`` or ``PORT`` as host and port; the host defaults to 127.0.0.1."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise BadInput(f"{address!r} is not HOST:PORT.", "Write for example 127.0.0.1:8080.")
    return host, int(port)


def make_http_app(engine: Engine, settings: Settings, host: str) -> Starlette:
    """The ASGI application: ``/mcp``, ``/health`` and ``/metrics``. The engine lives as long as it does.

    Stateless on purpose: no answer depends on a session, so any worker can serve any request.
    """
    from contextlib import asynccontextmanager

    from starlette.middleware import Middleware

    from toolscout.server.app import App
    from toolscout.server.http_limits import BodyLimit
    from toolscout.server.metrics import CountedBytes, Metrics

    check_access(settings, host)
    auth = make_auth(settings)
    app = App(engine, auth=auth, local=False)
    engine.telemetry.metrics = metrics = Metrics(engine)
    app.fastmcp.custom_route("/health", methods=["GET"])(_health(engine))
    app.fastmcp.custom_route("/metrics", methods=["GET"])(_guarded(metrics.page, auth))
    public = [urlsplit(settings.public_url).netloc] if settings.public_url else []
    hosts = [*settings.allowed_hosts, *public]
    application = app.fastmcp.http_app(
        path=PATH,
        middleware=[Middleware(BodyLimit, most=settings.max_request_bytes, seconds=settings.request_timeout)],
        stateless_http=True,
        host_origin_protection=True if hosts else "auto",
        # Loopback names always: a health check inside the container uses them, and no foreign page can.
        allowed_hosts=[host, *_LOOPBACK, *hosts] if is_loopback(host) or hosts else None,
    )
    inner = application.router.lifespan_context

    @asynccontextmanager
    async def with_engine(starlette: Any) -> Any:
        async with engine, inner(starlette) as state:
            showing = asyncio.create_task(metrics.keep_fresh()) if metrics.shared else None
            try:
                yield state
            finally:
                if showing is not None:
                    showing.cancel()

    application.router.lifespan_context = with_engine
    application.add_middleware(CountedBytes, metrics=metrics)
    return application


def check_access(settings: Settings, host: str) -> None:
    """Raise NotAllowed where anybody could come in from elsewhere."""
    if not (settings.auth_jwks or settings.auth_token or is_loopback(host)):
        raise NotAllowed(
            f"Refusing to listen on {host} without authentication.",
            "Set TOOLSCOUT_AUTH_TOKEN (or TOOLSCOUT_AUTH_JWKS), or listen on 127.0.0.1.",
        )
    if settings.auth_jwks and not settings.auth_audience and not is_loopback(host):
        raise NotAllowed(
            f"Refusing to listen on {host} for any token of that issuer, whoever it was made for.",
            "Set TOOLSCOUT_AUTH_AUDIENCE to what its tokens for this server name.",
        )


def _guarded(page: Page, auth: AuthProvider | None) -> Page:
    """``page`` for those who bring the token, if one is required; FastMCP guards only its own path."""
    from starlette.responses import PlainTextResponse

    async def guarded(request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if auth is not None and (scheme.lower() != "bearer" or await auth.verify_token(token) is None):
            return PlainTextResponse("a bearer token is required", 401, {"www-authenticate": "Bearer"})
        return await page(request)

    return guarded


def make_auth(settings: Settings) -> AuthProvider | None:
    """Bearer token or JWT verification as the settings ask for; None when they ask for none."""
    if settings.auth_jwks:
        from fastmcp.server.auth.providers.jwt import JWTVerifier

        verifier = JWTVerifier(
            jwks_uri=settings.auth_jwks, issuer=settings.auth_issuer or None, audience=settings.auth_audience or None
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


def is_loopback(host: str) -> bool:
    """Whether listening on ``host`` stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _health(engine: Engine) -> Page:
    from starlette.responses import JSONResponse

    async def health(request: Request) -> Response:
        # It also tries again what failed: behind a balancer no other request comes until this one says 200.
        with contextlib.suppress(TimeoutError, ToolscoutError):
            await asyncio.wait_for(engine.loaded(), _HEALTH_WAITS_SECONDS)
        body = {"status": "ok" if engine.is_loaded else "starting", "version": __version__}
        return JSONResponse(body, status_code=200 if engine.is_loaded else 503)

    return health
