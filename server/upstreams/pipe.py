"""JSON-RPC over an upstream's pipes, as a dispatcher for the SDK's client session.

The SDK's own stdio transport passes every message through two memory streams, two tasks and two model validations.
This one resolves the waiting call directly in the pipe's read callback, which is what keeps ``invoke`` close to a
direct call. It is also where a hostile or broken server is met: noise on stdout, answers of any size, a dead peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
from mcp.shared.dispatcher import (
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    ProgressFnT,
    as_request_id,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, PARSE_ERROR, REQUEST_TIMEOUT, RequestId
from pydantic import ValidationError

from toolscout.records import JsonObject
from toolscout.server.upstreams.process import Tail
from toolscout.server.upstreams.reading import read_json

_REPORTS_KEPT = 256
_REPORT_SECONDS = 1.0
_HEAD = 4096
_TAIL = 4096
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_ID_AT_END = re.compile(rb',\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*\}\s*$')


class NotSent(MCPError):
    """The upstream was gone before any of the request reached it: asking again is safe."""

    def __init__(self) -> None:
        super().__init__(code=CONNECTION_CLOSED, message="Connection closed before the request was sent")


class Unreadable(MCPError):
    """The upstream answered with neither a result nor an error that is one."""

    def __init__(self) -> None:
        super().__init__(code=PARSE_ERROR, message="The answer is no JSON-RPC message")


class TooLarge(MCPError):
    """The upstream's answer exceeds the limit; it was dropped."""

    def __init__(self, limit: int) -> None:
        super().__init__(code=INTERNAL_ERROR, message=f"answer larger than {limit} bytes")
        self.limit = limit


@dataclass
class _Inbound:
    """Context of a request or notification from the upstream (the SDK's ``DispatchContext``)."""

    dispatcher: PipeDispatcher
    request_id: RequestId | None
    transport: TransportContext
    message_metadata: MessageMetadata = None
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)
    can_send_request: bool = True

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await self.dispatcher.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        await self.dispatcher.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        return None  # progress runs from server to client only


@dataclass(slots=True)
class _Waiting:
    future: asyncio.Future[JsonObject]
    on_progress: ProgressFnT | None
    reports: deque[tuple[float, float | None, str | None]]
    reporter: asyncio.Task[None] | None = None


class PipeDispatcher:
    """The SDK's ``Dispatcher`` over newline-delimited JSON. ``write`` sends bytes and says whether it could.

    Lines longer than ``max_bytes`` are dropped as they arrive, and the call they answer fails with
    :class:`TooLarge`; everything else goes on.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._write: Callable[[bytes], bool] = _gone
        self._wait_writable: Callable[[], Any] | None = None
        self._writable: Callable[[], bool] = lambda: True
        self._next_id = 0
        self._waiting: dict[RequestId, _Waiting] = {}
        self._inbound: dict[RequestId, asyncio.Task[None]] = {}
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport = TransportContext(kind="stdio", can_send_request=True)
        self._parts: list[bytes] = []
        self._length = 0
        self._skipping = False
        self._head = b""
        self._tail = b""
        self.closed = asyncio.Event()
        self.noise = Tail()
        """What came on stdout that is no JSON-RPC message."""

    def attach(
        self, write: Callable[[bytes], bool], writable: Callable[[], bool], wait_writable: Callable[[], Any]
    ) -> None:
        """Connect the sending side."""
        self._write, self._writable, self._wait_writable = write, writable, wait_writable

    # receiving

    def feed(self, data: bytes) -> None:
        """Bytes from the upstream's stdout, in any portions."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._part(data[start:end] if start or end < len(data) else data)
            self._end_line()
            start = end + 1
        if start < len(data):
            self._part(data[start:] if start else data)

    def _part(self, data: bytes) -> None:
        if self._skipping:
            self._tail = (self._tail + data)[-_TAIL:]
            return
        self._parts.append(data)
        self._length += len(data)
        if self._length > self._max:
            # Tell the caller at once if the line's beginning names it; else its end has to.
            line = b"".join(self._parts)
            self._head, self._tail = line[:_HEAD], line[-_TAIL:]
            self._parts, self._length, self._skipping = [], 0, True
            if (request := _id_at_start(self._head)) is not None:
                self._too_large(request)

    def _end_line(self) -> None:
        if self._skipping:
            if _id_at_start(self._head) is None:
                self._too_large(_id_at_end(self._tail))
            self._skipping, self._head, self._tail = False, b"", b""
            return
        parts = self._parts
        if not parts:
            return
        line = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts, self._length = [], 0
        self._line(line)

    def _too_large(self, request: RequestId | None) -> None:
        if request is not None:
            ids = [coerce_request_id(request)]
        elif b'"method"' in self._head[:256]:
            ids = []  # a notification or request of the upstream's own: nobody waits for it
        else:
            ids = list(self._waiting)  # unattributable: better an error for all than a wait for ever
        for key in ids:
            self._settle(key, TooLarge(self._max))

    def _line(self, line: bytes) -> None:
        try:
            message = read_json(line)
        except (ValueError, RecursionError):
            message = None
            self._unreadable(line)
        if isinstance(message, dict):
            if message.get("jsonrpc") == "2.0":
                self._message(message)
                return
        elif isinstance(message, list) and message:  # batches, as in protocol 2025-03-26
            for item in message:
                if isinstance(item, dict) and item.get("jsonrpc") == "2.0":
                    self._message(item)
            return
        if line.strip():
            self.noise.add(line + b"\n")  # whole: half of a secret would not be recognised any more

    def _unreadable(self, line: bytes) -> None:
        """Fail the call that a broken message answers, if it says which: nothing else will come for it."""
        head = line[:_HEAD].lstrip()
        if head.startswith(b"{") and b'"jsonrpc"' in line and b'"method"' not in head:
            request = _id_at_start(head)
            if request is None:
                request = _id_at_end(line[-_TAIL:])
            if request is not None:
                self._settle(coerce_request_id(request), Unreadable())

    def _message(self, message: JsonObject) -> None:
        method = message.get("method")
        if method is None:
            self._answer(message)
            return
        params = message.get("params")
        if not isinstance(method, str) or (params is not None and not isinstance(params, dict)):
            return
        request_id = as_request_id(message.get("id"))
        if request_id is None:
            self._notification(method, params)
        elif self._on_request is not None:
            key = coerce_request_id(request_id)
            self._inbound[key] = task = self._spawn(self._serve(self._on_request, request_id, method, params))
            task.add_done_callback(lambda _: self._inbound.pop(key, None))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Not an anyio task group: the pipe's callbacks run in no task, where anyio can't be used.
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer(self, message: JsonObject) -> None:
        request_id = as_request_id(message.get("id"))
        error = message.get("error")
        if request_id is None:
            return
        if isinstance(error, dict):
            code, said = error.get("code"), error.get("message", "")
            told = (
                MCPError(code=code, message=said, data=error.get("data"))
                if isinstance(code, int) and isinstance(said, str)
                else Unreadable()
            )
            self._settle(coerce_request_id(request_id), told)
            return
        result = message.get("result")
        self._settle(coerce_request_id(request_id), result if isinstance(result, dict) else Unreadable())

    def _settle(self, key: RequestId, outcome: JsonObject | MCPError) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is None or waiting.future.done():
            return
        if isinstance(outcome, dict):
            waiting.future.set_result(outcome)
        else:
            waiting.future.set_exception(outcome)

    def _notification(self, method: str, params: JsonObject | None) -> None:
        if method == "notifications/progress" and params is not None:
            self._progress(params)
            return
        if method == "notifications/cancelled" and params is not None:
            request_id = as_request_id(params.get("requestId"))
            task = self._inbound.get(coerce_request_id(request_id)) if request_id is not None else None
            if task is not None:
                task.cancel()
        if run_notify_intercept(self._intercept, method, params):
            return
        if self._on_notify is not None:
            self._spawn(self._notified(self._on_notify, method, params))

    async def _notified(self, on_notify: OnNotify, method: str, params: JsonObject | None) -> None:
        try:
            await on_notify(_Inbound(self, None, self._transport), method, params)
        except Exception:
            self.noise.add(f"unusable notification {method}\n".encode())

    def _progress(self, params: JsonObject) -> None:
        token, progress = as_request_id(params.get("progressToken")), _number(params.get("progress"))
        waiting = self._waiting.get(coerce_request_id(token)) if token is not None else None
        if waiting is None or waiting.on_progress is None or progress is None:
            return
        message = params.get("message")
        waiting.reports.append((progress, _number(params.get("total")), message if isinstance(message, str) else None))
        if waiting.reporter is None or waiting.reporter.done():
            waiting.reporter = self._spawn(self._report(waiting, waiting.on_progress))

    async def _report(self, waiting: _Waiting, report: ProgressFnT) -> None:
        """Hand on one call's progress, in order; a slow listener misses the oldest steps of a flood."""
        while waiting.reports:
            with contextlib.suppress(Exception):  # the listener's trouble must not end the connection
                await report(*waiting.reports.popleft())

    async def _serve(
        self, on_request: OnRequest, request_id: RequestId, method: str, params: JsonObject | None
    ) -> None:
        """Answer a request of the upstream's (ping; the session refuses the rest)."""
        answer: JsonObject
        try:
            answer = {"result": await on_request(_Inbound(self, request_id, self._transport), method, params)}
        except MCPError as error:
            answer = {"error": error.error.model_dump(by_alias=True, mode="json", exclude_none=True)}
        except ValidationError:
            answer = {"error": {"code": INVALID_PARAMS, "message": "Invalid request parameters"}}
        except Exception:
            answer = {"error": {"code": INTERNAL_ERROR, "message": "Internal error"}}
        self._write(_encode({"jsonrpc": "2.0", "id": request_id, **answer}))

    def close(self) -> None:
        """The conversation is over: every waiting call fails."""
        if self.closed.is_set():
            return
        self.closed.set()
        for key in list(self._waiting):
            self._settle(key, MCPError(code=CONNECTION_CLOSED, message="Connection closed"))

    # sending (the SDK's Dispatcher protocol)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its result.

        Raises NotSent, TooLarge, or MCPError: the upstream's own error, REQUEST_TIMEOUT, CONNECTION_CLOSED.
        """
        options: CallOptions = opts or {}
        timeout = options.get("timeout")
        if not self._writable() and self._wait_writable is not None:
            try:
                async with asyncio.timeout(timeout):
                    await self._wait_writable()
            except TimeoutError:
                raise _timed_out(method, timeout or 0) from None
        if self.closed.is_set():
            raise NotSent
        request_id = options.get("request_id")
        if request_id is None:
            self._next_id += 1
            while self._next_id in self._waiting:
                self._next_id += 1
            request_id = self._next_id
        key = coerce_request_id(request_id)
        if key in self._waiting:
            raise ValueError(f"request id {request_id!r} is already in flight")
        on_progress = options.get("on_progress")
        message: JsonObject = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if on_progress is not None:
            params = {**(params or {})}
            params["_meta"] = {**params.get("_meta", {}), "progressToken": request_id}
        if params:
            message["params"] = params
        loop = asyncio.get_running_loop()
        future: asyncio.Future[JsonObject] = loop.create_future()
        waiting = self._waiting[key] = _Waiting(future, on_progress, deque(maxlen=_REPORTS_KEPT))
        timer = None
        try:
            if not self._write(_encode(message)):
                raise NotSent
            if timeout is not None:
                timer = loop.call_later(timeout, self._settle, key, _timed_out(method, timeout))
            result = await future
            if waiting.reporter is not None and not waiting.reporter.done():
                # After the result nobody may hear of progress any more, so let the last steps out first.
                await asyncio.wait([waiting.reporter], timeout=_REPORT_SECONDS)
            return result
        except (asyncio.CancelledError, MCPError) as error:
            abandoned = isinstance(error, asyncio.CancelledError) or error.error.code == REQUEST_TIMEOUT
            if abandoned and options.get("cancel_on_abandon", True) and not self.closed.is_set():
                # Synchronous on purpose: inside a cancelled scope nothing can be awaited.
                reason = "cancelled" if isinstance(error, asyncio.CancelledError) else "timed out"
                self._write(
                    _encode(
                        {
                            "jsonrpc": "2.0",
                            "method": "notifications/cancelled",
                            "params": {"requestId": request_id, "reason": reason},
                        }
                    )
                )
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(key, None)
            if waiting.reporter is not None:
                waiting.reporter.cancel()
            if future.done() and not future.cancelled():
                future.exception()  # seen, whoever it was for

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification; dropped when the upstream has gone."""
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._write(_encode(message))

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve the upstream's own requests and notifications until the connection closes."""
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        try:
            task_status.started()
            await self.closed.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            self.close()
            self._on_request = self._on_notify = self._intercept = None
            self._write, self._writable, self._wait_writable = _gone, lambda: True, None


def _gone(data: bytes) -> bool:
    return False


def _encode(message: JsonObject) -> bytes:
    # ASCII escapes: they carry lone surrogates, which UTF-8 can't.
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _timed_out(method: str, seconds: float) -> MCPError:
    return MCPError(code=REQUEST_TIMEOUT, message=f"{method} was not answered within {seconds:g} s")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond every float
        return None


def _id_at_start(head: bytes) -> RequestId | None:
    """The top-level ``id`` of a JSON object of which only the beginning is known."""
    depth = 0
    key: bytes | None = None
    previous = b""
    for match in _TOKEN.finditer(head):
        token = match[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
        elif depth == 1:
            if token == b":":
                key = previous
            elif key == b'"id"' and match.end() < len(head):
                return _request_id(token)
            elif token == b",":
                key = None
        previous = token
    return None


def _id_at_end(tail: bytes) -> RequestId | None:
    match = _ID_AT_END.search(tail)
    return _request_id(match[1]) if match else None


def _request_id(token: bytes) -> RequestId | None:
    try:
        return as_request_id(json.loads(token))
    except ValueError:
        return None
