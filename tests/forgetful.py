"""A server of the 2025 era over streamable HTTP that forgets sessions, and refuses, as a test wants it."""

from __future__ import annotations

import json
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, object, dict[str, str]]


def rpc(code: int, message: str, id: object = None) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


class Forgetful(ThreadingHTTPServer):
    """A server of the 2025 era with sessions. ``lost`` is how it answers one that it does not know, ``refusal`` how it
    answers a call, ``key`` the bearer token that it wants."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sessions: set[str] = set()
        self.handshakes = self.calls = 0
        self.lost: Answer = (404, None, {})
        self.refusal: Answer | None = None
        self.key = ""
        self.unknowing = False
        self.pings = False
        """Whether it answers a ping over a session that it does not know."""
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"


class _Handler(BaseHTTPRequestHandler):
    server: Forgetful

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, session = message["method"], self.headers.get("mcp-session-id")
        if self.server.key and self.headers.get("authorization") != f"Bearer {self.server.key}":
            return self.answer(401, None, {"www-authenticate": 'Bearer error="invalid_token", error_description="Old"'})
        if method == "initialize":
            session = uuid.uuid4().hex
            self.server.sessions.add(session)
            self.server.handshakes += 1
        elif method == "ping" and self.server.pings:
            pass
        elif session not in self.server.sessions or (self.server.unknowing and method in ("tools/call", "ping")):
            status, body, headers = self.server.lost
            if isinstance(body, dict) and "UUID" in str(body):
                body = json.loads(json.dumps(body).replace("UUID", uuid.uuid4().hex))
            return self.answer(status, body, headers, id=message.get("id"))
        if "id" not in message:
            return self.answer(202, None, {})
        if method == "tools/call":
            self.server.calls += 1
            if self.server.refusal is not None:
                return self.answer(*self.server.refusal, id=message["id"])
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "f", "version": "1"},
        }
        result: dict[str, Any] = {
            "initialize": about,
            "tools/list": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "called"}]},
        }.get(method, {})
        return self.answer(
            200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, {"mcp-session-id": session or ""}
        )

    def answer(self, status: int, body: object, headers: dict[str, str], *, id: object = None) -> None:
        if isinstance(body, dict) and "error" in body and status < 400:
            body = {**body, "id": id}
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "text/plain" if isinstance(body, str) else "application/json"
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.send_error(405)

    def do_DELETE(self) -> None:
        self.answer(200, None, {})

    def log_message(self, *_: object) -> None:
        pass
