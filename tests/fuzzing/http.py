"""HTTP requests to the application, without a socket: whatever comes, an answer and no exception."""

# ruff: noqa: E501  (tables of odd values)

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hypothesis import strategies as st

from fuzzing.engine import home
from fuzzing.frames import METHODS, VERSIONS, lines
from toolscout.server.engine import Engine
from toolscout.server.web.http import make_http_app

_BYTES = st.one_of(st.sampled_from([b"", b"Bearer t", b"Bearer ", b"Bearer \xff", b"Basic eA==", b"a" * 5000, b"\xff\xfe"]),
                   st.binary(max_size=12))  # fmt: skip
_HEADERS: dict[bytes, Any] = {
    b"accept": st.one_of(st.sampled_from([b"application/json, text/event-stream"] * 3 + [b"*/*", b"text/html"]), _BYTES),
    b"content-type": st.one_of(st.sampled_from([b"application/json"] * 3 + [b"text/plain", b"application/json; charset=x"]), _BYTES),
    b"host": st.one_of(st.sampled_from([b"127.0.0.1:80"] * 4 + [b"evil.example", b"[::1", b":", b"a:b:c"]), _BYTES),
    b"origin": st.one_of(st.sampled_from([b"http://127.0.0.1:80", b"null", b"https://evil.example", b"http://["]), _BYTES),
    b"authorization": _BYTES,
    b"mcp-session-id": _BYTES,
    b"mcp-protocol-version": st.one_of(st.sampled_from([str(v).encode() for v in VERSIONS]), _BYTES),
    b"mcp-method": st.one_of(st.sampled_from([m.encode("utf-8", "replace") for m in METHODS]), _BYTES),
    b"content-length": st.sampled_from([b"0", b"5", b"-1", b"99999999999999999999", b"x", b"\xb2"]),
    b"transfer-encoding": st.sampled_from([b"chunked", b"gzip"]),
    b"last-event-id": _BYTES,
    b"x-forwarded-for": _BYTES,
    b"cookie": _BYTES,
}  # fmt: skip
_ALWAYS = {name: _HEADERS[name] for name in (b"accept", b"content-type", b"host")}
cases = st.tuples(
    st.sampled_from(["POST"] * 6 + ["GET", "DELETE", "OPTIONS", "PUT", "HEAD", "BREW"]),
    st.sampled_from(["/mcp"] * 8 + ["/", "/mcp/", "/health", "/metrics", "/\x00", "/%00", "//mcp", "/mcp/../x", "/ü"]),
    st.fixed_dictionaries(_ALWAYS, optional={k: v for k, v in _HEADERS.items() if k not in _ALWAYS}),
    st.lists(lines, max_size=3),
)
SHARE = 10


@contextmanager
def checking() -> Iterator[Callable[[Any], None]]:
    """The check of a case against one application that lives for all of them."""
    with home() as settings, asyncio.Runner() as runner:
        application = make_http_app(Engine(settings), settings, "127.0.0.1")
        living = _Life(application)
        runner.run(living.start())
        try:
            yield lambda case: runner.run(_ask(application, case))
        finally:
            runner.run(living.end())


class _Life:
    """The application's lifespan, entered and left in one task."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def start(self) -> None:
        self._over, ready = asyncio.Event(), asyncio.Event()

        async def live() -> None:
            async with self._application.router.lifespan_context(self._application):
                ready.set()
                await self._over.wait()

        self._task = asyncio.create_task(live())
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not self._task.done(), self._task

    async def end(self) -> None:
        self._over.set()
        await self._task


async def _ask(application: Any, case: Any) -> None:
    method, path, headers, body = case
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"a=%ff", "root_path": "",
        "headers": list(headers.items()), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    waiting = [*body[:-1]] if body else []
    last = body[-1] if body else b""
    sent: list[dict[str, Any]] = []
    finished = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(0), "more_body": True}
        nonlocal last
        if last is not None:
            data, last = last, None
            return {"type": "http.request", "body": data, "more_body": False}
        with suppress(TimeoutError):  # a stream that waits for events ends when the client goes
            await asyncio.wait_for(finished.wait(), 0.3)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            finished.set()

    await asyncio.wait_for(application(scope, receive, send), 40)
    assert sent and sent[0]["type"] == "http.response.start", sent[:1]
    status = sent[0]["status"]
    assert status < 500 or (path == "/health" and status == 503), (status, sent[1:2])
