"""A local web server whose pages a test knows, with a record of who asked for what and when."""

from __future__ import annotations

import html
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

Reply = tuple[int, str, str]
"""Status, content type, body."""


@dataclass
class Listed:
    """One made-up server of a marketplace."""

    name: str
    about: str = "Does useful things."
    config: Any = None
    """What its page prints: an object (as JSON), or text as it is; None for nothing."""

    status: int = 200
    stars: int = 0
    tools: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """Its name in addresses."""
        return self.name.lower().replace(" ", "-")

    def printed(self) -> str:
        """Its configuration as text."""
        return self.config if isinstance(self.config, str) else json.dumps(self.config, indent=2)


def npx(package: str, **env: str) -> dict[str, Any]:
    """A configuration that runs an npm package."""
    entry: dict[str, Any] = {"command": "npx", "args": ["-y", package]}
    return {"mcpServers": {package.rpartition("/")[2]: entry | ({"env": env} if env else {})}}


def uvx(package: str, *args: str) -> dict[str, Any]:
    """A configuration that runs a PyPI package."""
    return {"mcpServers": {package: {"command": "uvx", "args": [package, *args]}}}


class LocalSite:
    """One site on a port of its own. A subclass answers `page`."""

    robots = "User-agent: *\nAllow: /\n"

    def __init__(self, servers: list[Listed]) -> None:
        self.servers = servers
        self.asked: list[tuple[float, str, str]] = []
        """Time, path with query, and user agent of every request."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.asked.append((time.monotonic(), self.path, self.headers.get("User-Agent", "")))
                parts = urlsplit(self.path)
                if parts.path == "/robots.txt":
                    status, kind, body = 200, "text/plain", site.robots
                else:
                    headers = {k.lower(): v for k, v in self.headers.items()}
                    status, kind, body = site.page(unquote(parts.path), dict(parse_qsl(parts.query)), headers)
                data = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:  # a browser drops connections as it likes
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> LocalSite:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        """One page."""
        raise NotImplementedError

    def opened(self, prefix: str) -> list[str]:
        """Paths asked for that start so, in order."""
        return [path for _, path, _ in self.asked if path.startswith(prefix)]

    def by_slug(self, slug: str) -> Listed | None:
        """The server of an address."""
        return next((s for s in self.servers if s.slug == slug), None)


GONE: Reply = (404, "text/html", "<title>Not found</title><h1>404</h1><p>This page could not be found.</p>")


def document(title: str, body: str, about: str = "", script: str = "") -> Reply:
    """A page with the usual header, footer and advertisement around its content."""
    meta = f'<meta name="description" content="{html.escape(about, quote=True)}">' if about else ""
    return (
        200,
        "text/html",
        f"<!doctype html><html lang=en><head><title>{html.escape(title)}</title>{meta}</head><body>"
        '<header><nav aria-label="Main"><a href="/">Home</a> <a href="/docs">Docs</a> <a href="/blog">Blog</a> '
        '<a href="/login">Sign in</a></nav></header>'
        f"<main>{body}</main>"
        '<aside><a href="https://sponsor.invalid/offer">Try our sponsor</a></aside>'
        '<footer><a href="/privacy">Privacy</a> <a href="/terms">Terms</a> '
        '<a href="https://github.com/marketplace/site">GitHub</a></footer>'
        f"<script>{script}</script></body></html>",
    )


def as_json(value: Any) -> Reply:
    """A JSON answer."""
    return 200, "application/json", json.dumps(value)


def text(value: str) -> str:
    """Escaped for HTML."""
    return html.escape(value)
