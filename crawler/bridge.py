"""A program of its own, run inside a sandbox (``python -c``, so the standard library alone): it starts a server that
speaks HTTP there, and carries JSON-RPC lines between its own pipes and the server's port.

What the server prints goes to stderr, so that no line of its own is taken for an answer.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

ENDPOINT = "toolscout/endpoint"
"""The notification that says where the server was reached, before its first answer."""

_PATHS = ("/mcp", "/", "/sse", "/mcp/sse", "/api/mcp", "/v1/mcp", "/api/sse", "/messages", "/stream")
_SECONDS = 15.0
"""Most seconds without a byte of an answer."""
_PATIENCE = 6.0
"""Most seconds without an event."""
_ROUNDS = 15
_TOKEN = "Bearer 0123456789abcdef0123456789abcdef"


class _Bridge:
    def __init__(self, argv: list[str]) -> None:
        self.said = ""
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._server = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Pass on what the server prints; end with it."""
        assert self._server.stdout is not None
        for line in self._server.stdout:
            self.said = (self.said + line)[-20_000:]
            sys.stderr.write(line)
            sys.stderr.flush()
        os._exit(self._server.wait() & 0xFF)

    def tell(self, text: str) -> None:
        """Say once on stderr why an address was not taken."""
        if text not in self._told:
            self._told.add(text)
            print(text, file=sys.stderr, flush=True)

    def put(self, message: Any) -> None:
        """Hand on a message of the server's."""
        with self._lock:
            print(json.dumps(message), flush=True)

    def connect(self, first: dict[str, Any]) -> _Link:
        """Try ports and paths until one answers the first request, which is handed on. Ends the process where ports
        are open and none of them answers; as long as none is, whoever started us bounds the time."""
        rounds = 0
        while rounds < _ROUNDS:
            ports = _ports()
            rounds += bool(ports)
            for port in ports:
                named = re.findall(r"(?:https?://[^/\s\"']+|\s)(/[\w./-]*)", self.said)
                for path in dict.fromkeys((*(p for p in named if re.search(r"mcp|sse|rpc", p)), *_PATHS)):
                    for token in ("", _TOKEN):
                        link = _Link(self, port, path, token)
                        try:
                            if link.opens(first):
                                return link
                        except (OSError, http.client.HTTPException, ValueError) as error:
                            self.tell(f"port {port}{path}: {type(error).__name__}")
                        if not link.unauthorized:
                            break
            time.sleep(0.3)
        sys.exit("no port answered an MCP request")


class _Link:
    """One address of the server: streamable HTTP, or the event stream of 2024 with an endpoint of its own."""

    def __init__(self, bridge: _Bridge, port: int, path: str, token: str) -> None:
        self.unauthorized = False
        self._bridge = bridge
        self._port = port
        self._path = path
        self._headers = {"Host": f"localhost:{port}", **({"Authorization": token} if token else {})}
        self._stream: http.client.HTTPResponse | None = None
        self._opened = False
        self._status = 0

    def opens(self, first: dict[str, Any]) -> bool:
        """Whether it answers the first request."""
        try:
            if self.send(first):
                return True
        except ValueError:
            pass  # a page for people
        if self._status not in (200, 404, 405):
            return False
        response = self._asked("GET", self._path, None, _PATIENCE)
        if response.status != 200 or "event-stream" not in (response.headers.get("content-type") or ""):
            return False
        events = _events(response)
        event, data = next(events, ("", ""))
        if event != "endpoint":
            return False
        stream, self._path = self._path, urlsplit(data).path + (f"?{urlsplit(data).query}" if "?" in data else "")
        self._stream = response
        self._announce("sse", stream)
        threading.Thread(target=self._read, args=(events,), daemon=True).start()
        return self.send(first)

    def send(self, message: dict[str, Any]) -> bool:
        """Post a message and hand on what comes back; whether the server took it."""
        response = self._asked("POST", self._path, message, _SECONDS)
        if response.status in (307, 308) and response.headers.get("location"):
            self._path = urlsplit(response.headers["location"]).path
            response = self._asked("POST", self._path, message, _SECONDS)
        self._status = response.status
        if not 200 <= response.status < 300:
            self.unauthorized = response.status in (401, 403)
            if response.status not in (404, 405):
                said = response.read(300).decode("utf-8", "replace")
                self._bridge.tell(f"port {self._port}{self._path}: HTTP status {response.status}: {said}")
            return False
        if self._stream is not None or "id" not in message:
            return True
        if session := response.headers.get("mcp-session-id"):
            self._headers["Mcp-Session-Id"] = session
        if "event-stream" in (response.headers.get("content-type") or ""):
            found: Iterator[Any] = (json.loads(data) for _, data in _events(response) if data)
        else:
            found = iter([json.loads(response.read())])
        for answer in found:
            if not isinstance(answer, dict) or answer.get("jsonrpc") != "2.0":
                return False
            if not self._opened:
                self._announce("http", self._path)
            self._bridge.put(answer)
            if str(answer.get("id")) == str(message["id"]):
                result = answer.get("result")
                if isinstance(result, dict) and result.get("protocolVersion"):
                    self._headers["MCP-Protocol-Version"] = str(result["protocolVersion"])
                return True
        return False

    def _announce(self, transport: str, path: str) -> None:
        self._opened = True
        where = {"transport": transport, "url": f"http://localhost:{self._port}{path}"}
        params = {**where, "authorized": "Authorization" in self._headers}
        self._bridge.put({"jsonrpc": "2.0", "method": ENDPOINT, "params": params})

    def _asked(self, method: str, path: str, message: Any, seconds: float) -> http.client.HTTPResponse:
        accepted = "text/event-stream" if message is None else "application/json, text/event-stream"
        headers = {**self._headers, "Accept": accepted, "Content-Type": "application/json"}
        if isinstance(message, dict) and "_meta" in (message.get("params") or {}):  # the stateless era
            meta = message["params"]["_meta"]
            versions = [str(v) for k, v in meta.items() if k.endswith("protocolVersion")]
            headers |= {"Mcp-Method": message["method"], "MCP-Protocol-Version": versions[0]}
        body = None if message is None else json.dumps(message)
        for host in ("127.0.0.1", "::1"):
            connection = http.client.HTTPConnection(host, self._port, timeout=seconds)
            try:
                connection.request(method, path, body, headers)
            except ConnectionRefusedError:
                continue
            return connection.getresponse()
        raise ConnectionRefusedError

    def _read(self, events: Iterator[tuple[str, str]]) -> None:
        for _, data in events:
            if data:
                self._bridge.put(json.loads(data))


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """The events of a stream: kind and data."""
    kind = ""
    data: list[str] = []
    for raw in response:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data or kind:
                yield kind, "\n".join(data)
            kind, data = "", []
        elif line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].strip())


def _ports() -> list[int]:
    """The ports that something in this sandbox listens on."""
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as table:  # noqa: PTH123
            rows = [row.split() for row in table.readlines()[1:]]
        found |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    return sorted(found)


def main() -> None:
    """Start the server, and carry lines until stdin closes."""
    bridge = _Bridge(sys.argv[1:])
    link: _Link | None = None
    for line in sys.stdin:
        message = json.loads(line)
        if link is None:
            link = bridge.connect(message)
        elif not link.send(message) and "id" in message:
            error = {"code": -32000, "message": "the request was refused over HTTP"}
            bridge.put({"jsonrpc": "2.0", "id": message["id"], "error": error})


if __name__ == "__main__":
    main()
