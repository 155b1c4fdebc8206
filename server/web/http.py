"""Serving over streamable HTTP: uvicorn, a bearer token or JWT, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from toolscout import __version__
from toolscout.errors import BadInput, ToolscoutError
from toolscout.server.web.auth import check_access, is_loopback, make_auth, public_hosts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastmcp.server.auth import AuthProvider
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
    from toolscout.server.model_serving.run import free_port
    from toolscout.server.telling.logs import configure_logging
    from toolscout.settings import load_settings

    host, port = parse_address(address)
    settings = load_settings()
    configure_logging(settings)
    check_access(settings, host)
    if port:
        free_port(host, port, "Choose another port: toolscout serve --http HOST:PORT")
    if workers != 1:
        from toolscout.server.web.workers import run_workers

        run_workers(host, port, workers)
        return
    raise_file_limit()
    application = make_http_app(Engine(settings, serving=True), settings, host)
    config = uvicorn.Config(application, host=host, port=port, log_level="warning", lifespan="on", **bounds(settings))
    configure_logging(settings)  # uvicorn has put handlers of its own in
    uvicorn.Server(config).run()


def bounds(settings: Settings) -> dict[str, Any]:
    """uvicorn's options that bound what clients can take and what they can say of themselves, and how long the server
    waits for them when it ends."""
    from toolscout.server.web.limits import CONNECTIONS, PatientProtocol

    return {
        "http": PatientProtocol,
        "limit_concurrency": CONNECTIONS,
        "timeout_graceful_shutdown": 5,
        # By default uvicorn believes every program of this machine where it calls from, and rates go by that.
        "proxy_headers": bool(settings.trusted_proxies),
        "forwarded_allow_ips": settings.trusted_proxies,
    }


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
    from toolscout.server.telling.metrics import CountedBytes, Metrics
    from toolscout.server.web.clients import ClientKeys
    from toolscout.server.web.limits import BodyLimit

    check_access(settings, host)
    auth = make_auth(settings)
    app = App(engine, auth=auth, local=False)
    engine.telemetry.metrics = metrics = Metrics(engine)
    app.fastmcp.custom_route("/health", methods=["GET"])(_health(engine))
    app.fastmcp.custom_route("/metrics", methods=["GET"])(_guarded(metrics.page, auth))
    hosts = public_hosts(settings)
    application = app.fastmcp.http_app(
        path=PATH,
        middleware=[
            *([] if settings.share_upstreams else [Middleware(ClientKeys)]),
            Middleware(
                BodyLimit,
                most=settings.max_request_bytes,
                seconds=settings.request_timeout,
                total=settings.max_buffered_bytes,
                authenticated=auth is not None,
            ),
        ],
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


def _guarded(page: Page, auth: AuthProvider | None) -> Page:
    """``page`` for those who bring the token, if one is required; FastMCP guards only its own path."""
    from starlette.responses import PlainTextResponse

    async def guarded(request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if auth is not None and (scheme.lower() != "bearer" or await auth.verify_token(token) is None):
            return PlainTextResponse("a bearer token is required", 401, {"www-authenticate": "Bearer"})
        return await page(request)

    return guarded


def _health(engine: Engine) -> Page:
    from starlette.responses import JSONResponse

    async def health(request: Request) -> Response:
        # It also tries again what failed: behind a balancer no other request comes until this one says 200.
        with contextlib.suppress(TimeoutError, ToolscoutError):
            await asyncio.wait_for(engine.loaded(), _HEALTH_WAITS_SECONDS)
        body = {"status": "ok" if engine.is_loaded else "starting", "version": __version__}
        return JSONResponse(body, status_code=200 if engine.is_loaded else 503)

    return health
