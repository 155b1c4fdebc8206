"""The gate answers what it has recorded, passes on the rest in order, and says exactly what the engine would say."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from toolscout.commands.output import with_engine
from toolscout.server import face
from toolscout.server.engine import Engine
from toolscout.server.gate import Gate, Handover, hold
from toolscout.server.stdio import prepare
from toolscout.settings import Settings

ANSWERS = {
    "initialize": {"2025-11-25": {"protocolVersion": "2025-11-25"}},
    "tools/list": {"2025-11-25": {"tools": ["old"]}, "2026-07-28": {"tools": ["new"]}},
    "server/discover": {"2026-07-28": {"supportedVersions": ["2026-07-28"]}},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


def line(method: str, params: Any = None, ident: Any = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
    return json.dumps({key: value for key, value in message.items() if value is not None}).encode()


def answered(gate: Gate, message: bytes) -> Any:
    response, forward = gate.answer(message)
    assert response is not None
    return json.loads(response)["result"], forward


def test_legacy_opening_is_answered_and_initialize_still_reaches_the_engine() -> None:
    gate = Gate(ANSWERS)
    assert answered(gate, line("initialize", HELLO)) == ({"protocolVersion": "2025-11-25"}, True)
    assert answered(gate, line("tools/list")) == ({"tools": ["old"]}, False)


def test_modern_opening_is_answered_without_a_handshake() -> None:
    gate = Gate(ANSWERS)
    assert answered(gate, line("server/discover", ENVELOPE))[0] == {"supportedVersions": ["2026-07-28"]}
    assert answered(gate, line("tools/list", ENVELOPE)) == ({"tools": ["new"]}, False)


@pytest.mark.parametrize(
    "message",
    [
        b"not json",
        b"[]",
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        line("tools/list"),  # before any handshake, without an envelope
        line("tools/call", {"name": "find_tools"}),
        line("initialize", {**HELLO, "protocolVersion": "1999-01-01"}),
        line("initialize", {"protocolVersion": "2025-11-25"}),
        line("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}),
        line("tools/list", {**ENVELOPE, "cursor": "x"}),
        line("tools/list", ENVELOPE, ident=True),
        line("tools/list", ENVELOPE, ident=1.5),
        line("tools/list", [1]),
        b"[" * 100_000,
    ],
)
def test_what_the_gate_cannot_answer_exactly_goes_to_the_engine(message: bytes) -> None:
    assert Gate(ANSWERS).answer(message) == (None, True)


def test_eras_are_not_mixed_on_one_connection() -> None:
    gate = Gate(ANSWERS)
    answered(gate, line("initialize", HELLO))
    assert gate.answer(line("tools/list", ENVELOPE)) == (None, True)
    assert gate.answer(line("initialize", HELLO, ident=2)) == (None, True)


def run_hold(sent: bytes, *, close: bool, boot: Any = None) -> tuple[Handover, bytes]:
    """Run the gate over real pipes; the boot ends once the gate has read what was sent."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    release = threading.Event()
    os.write(in_write, sent)
    if close:
        os.close(in_write)
    threading.Timer(0.3, release.set).start()
    handover = hold(ANSWERS, boot or release.wait, in_read, out_write)
    os.close(out_write)
    written = os.read(out_read, 65536)
    for fd in (in_read, out_read, *([] if close else [in_write])):
        os.close(fd)
    return handover, written


def test_held_messages_keep_their_order_and_answered_ones_are_muted() -> None:
    call = line("tools/call", {"name": "find_tools"}, ident=3)
    initialized = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    sent = b"\n".join([line("initialize", HELLO, ident="a"), initialized, line("tools/list", ident=2), call, b"half"])
    handover, written = run_hold(sent, close=False)
    assert [json.loads(answer)["id"] for answer in written.splitlines()] == ["a", 2]
    assert [json.loads(held)["method"] for held in handover.lines] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]
    assert handover.muted == {'"a"'}
    assert handover.rest == b"half"
    assert not handover.eof


def test_a_client_that_leaves_at_once_needs_no_engine() -> None:
    never = threading.Event()
    handover, written = run_hold(b"", close=True, boot=never.wait)
    assert handover.eof and not handover.lines and written == b""


def test_a_client_that_only_looks_needs_no_engine() -> None:
    never = threading.Event()
    sent = line("initialize", HELLO) + b"\n" + line("tools/list", ident=2) + b"\n"
    handover, written = run_hold(sent, close=True, boot=never.wait)
    assert handover.eof and not handover.wanted and len(written.splitlines()) == 2


def test_a_failed_boot_is_handed_over() -> None:
    def boot() -> None:
        raise ValueError("no engine")

    handover, _ = run_hold(line("tools/call", {}), close=False, boot=boot)
    assert isinstance(handover.error, ValueError)


def ask(home: Path, *questions: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of a freshly started server, the process left to end by itself."""
    env = {**os.environ, "TOOLSCOUT_HOME": str(home), "TOOLSCOUT_STARTER": "0"}
    with subprocess.Popen(
        [sys.executable, "-m", "toolscout", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        answers = []
        for number, (method, params) in enumerate(questions):
            server.stdin.write(line(method, params, ident=number) + b"\n")
            server.stdin.flush()
            while True:
                message = json.loads(server.stdout.readline())
                if message.get("id") == number:
                    break
            answers.append(message)
        server.stdin.close()
        assert server.wait(timeout=30) == 0
    return answers


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_the_gate_says_what_the_engine_says(home: Path, version: str) -> None:
    if version == "2026-07-28":
        questions = [("server/discover", ENVELOPE), ("tools/list", ENVELOPE)]
        call = {"name": "find_tools", "arguments": {"query": "mow the lawn"}, **ENVELOPE}
    else:
        questions = [("initialize", {**HELLO, "protocolVersion": version}), ("tools/list", {})]
        call = {"name": "find_tools", "arguments": {"query": "mow the lawn"}}
    # The search loads the engine, whose start records the face. Listed before that (on a slow machine), the tools could
    # not say what the catalogue holds: so the engine is asked for them last.
    opening, listing = questions
    questions.append(("tools/call", call))
    assert not face.load(home)
    first, called, listed = ask(home, opening, ("tools/call", call), listing)
    from_engine = [first, {**listed, "id": 1}, {**called, "id": 2}]
    assert face.load(home)
    from_gate = ask(home, *questions)
    assert from_gate == from_engine
    assert [tool["name"] for tool in from_gate[1]["result"]["tools"]] == ["find_tools", "suggest_call", "invoke"]


def test_a_face_of_another_version_is_not_used(home: Path) -> None:
    face.save(home, {"ping": {"2025-11-25": {}}})
    assert face.load(home) == {"ping": {"2025-11-25": {}}}
    record = json.loads((home / "face.json").read_text())
    record["key"][0] = "0.0.0"
    (home / "face.json").write_text(json.dumps(record))
    assert face.load(home) == {}
    (home / "face.json").write_text("{broken")
    assert face.load(home) == {}


def test_a_command_after_an_upgrade_prepares_the_first_start(home: Path) -> None:
    async def look(engine: Engine) -> None:
        await engine.loaded()

    with_engine(look, settings=(settings := Settings(home=home, starter=False)))
    assert not (home / "face.json").exists()  # nobody has started a server here
    asyncio.run(prepare(settings))
    before = face.load(home)
    record = json.loads((home / "face.json").read_text())
    record["key"][0] = "0.0.0"
    (home / "face.json").write_text(json.dumps(record))
    with_engine(look, settings=settings)
    assert before and face.load(home) == before
