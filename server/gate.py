"""The stdio gate: answers a client's opening questions while the engine is still being imported.

A client starts a server, shakes hands, lists its tools, and only then calls one. The imports behind a call take
seconds on a small machine; the first three answers never change between starts. So the answers that the engine gave
the last time (the face, see `face.py`) are kept on disk, and this module, which imports nothing but a few standard
modules, gives them at once. Whatever it cannot answer exactly waits for the engine, in order.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MODERN_VERSION = "io.modelcontextprotocol/protocolVersion"
_MODERN_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_CHUNK = 65536
_SWITCH_INTERVAL = 0.0005  # seconds; the default lets an importing thread keep the interpreter for 5 ms at a time

Answers = Mapping[str, Mapping[str, Any]]
"""``{method: {protocol version: result}}``, as recorded from the engine."""


@dataclass
class Handover:
    """What the gate leaves to the engine."""

    lines: list[bytes] = field(default_factory=list)
    """Messages for the engine, oldest first. An answered ``initialize`` is among them: it sets up the connection."""

    rest: bytes = b""
    """Bytes of a line that had not ended yet."""

    muted: set[str] = field(default_factory=set)
    """Ids (as JSON) of requests that are answered already: the engine's own answers to them must not be sent."""

    eof: bool = False

    wanted: bool = False
    """Whether a request among the lines still waits for its answer."""

    error: BaseException | None = None
    """What went wrong while the engine was loading, if anything did."""


class Gate:
    """Answers opening requests from recorded answers. Knows one connection."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._legacy_version: str | None = None

    def answer(self, line: bytes) -> tuple[bytes | None, bool]:
        """The response to one message (or None), and whether the engine must still see the message."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return None, True
        if not isinstance(message, dict) or "id" not in message or message.get("jsonrpc") != "2.0":
            return None, True
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
            return None, True
        if isinstance(message["id"], bool) or not isinstance(message["id"], str | int):
            return None, True
        if isinstance(message["id"], str) and not _is_text(message["id"]):
            return None, True
        result = self._result(method, params or {})
        if result is None:
            return None, True
        response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        text = json.dumps(response, ensure_ascii=False, separators=(",", ":"))
        return text.encode() + b"\n", method == "initialize"

    def _result(self, method: str, params: dict[str, Any]) -> Any:
        known = self._answers.get(method)
        if known is None:
            return None
        if method == "initialize":
            version = params.get("protocolVersion")
            whole = isinstance(params.get("clientInfo"), dict) and isinstance(params.get("capabilities"), dict)
            if not whole or not isinstance(version, str) or version not in known or self._legacy_version:
                return None
            self._legacy_version = version
            return known[version]
        meta = params.get("_meta")
        if isinstance(meta, dict) and _MODERN_VERSION in meta:
            if self._legacy_version or set(params) != {"_meta"} or not isinstance(meta.get(_MODERN_CAPABILITIES), dict):
                return None
            return known.get(str(meta[_MODERN_VERSION]))
        if self._legacy_version is None or set(params) - {"_meta"}:
            return None
        return known.get(self._legacy_version)


def _is_text(value: str) -> bool:
    """Whether UTF-8 can carry it: a lone surrogate comes in as an escape and cannot be sent back."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def hold(answers: Answers, boot: Callable[[], None], fd_in: int, fd_out: int) -> Handover:
    """Serve the gate on two file descriptors until ``boot`` has returned in a thread of its own, then hand over."""
    handover = Handover()
    gate = Gate(answers)
    wake_read, wake_write = os.pipe()

    def run_boot() -> None:
        try:
            boot()
        except BaseException as error:  # carried to the main thread, which raises it
            handover.error = error
        finally:
            os.write(wake_write, b"x")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    thread = threading.Thread(target=run_boot, name="boot", daemon=True)
    thread.start()
    buffer = b""
    try:
        while True:
            sources = [wake_read] if handover.eof else [wake_read, fd_in]
            readable, _, _ = select.select(sources, [], [])
            if wake_read in readable:
                break
            chunk = os.read(fd_in, _CHUNK)
            if not chunk:
                handover.eof = True
                if not handover.wanted and not buffer.strip():
                    break  # the client is gone and everything it asked is answered
                continue
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    _pass(gate, line, fd_out, handover)
    finally:
        sys.setswitchinterval(interval)
    handover.rest = buffer
    return handover


def _pass(gate: Gate, line: bytes, fd_out: int, handover: Handover) -> None:
    response, forward = gate.answer(line)
    if response is not None:
        write_all(fd_out, response)
        if forward:
            handover.muted.add(json.dumps(json.loads(line)["id"]))
    if forward:
        handover.lines.append(line)
        # Anything that is not plainly a notification may want an answer, be it only a parse error.
        handover.wanted = handover.wanted or (response is None and not _is_notification(line))


def _is_notification(line: bytes) -> bool:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and "id" not in message and "method" in message


def write_all(fd: int, data: bytes) -> None:
    """Write every byte to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
