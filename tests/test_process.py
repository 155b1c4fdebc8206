"""What is kept of an upstream's stderr, and what the watchdog is told."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from toolscout.server.secrecy.hiding import HIDDEN, Hider
from toolscout.server.upstreams.process import Tail, find_program
from toolscout.server.upstreams.watchdog import MARKER, Watchdog


def test_a_secret_at_the_cut_is_hidden_whole() -> None:
    tail = Tail()
    tail.add(b"the key is s3cr3t-value-of-some-length and then " + b"x" * 40)
    shown = tail.text(characters=60, hider=Hider({"s3cr3t-value-of-some-length"}))
    assert "length" not in shown and shown.endswith("x" * 40)
    assert "length" in tail.text(characters=60)


def parts(secret: str, text: str) -> list[str]:
    """What of the secret, in pieces of eight characters, stands in the text."""
    return [secret[i : i + 8] for i in range(len(secret) - 7) if secret[i : i + 8] in text]


def test_a_long_secret_that_is_said_again_and_again_leaves_no_part() -> None:
    secret = "".join(f"{n:04x}q" for n in range(400))
    tail = Tail()
    for _ in range(4):
        tail.add(f"token {secret}\n".encode())
    assert parts(secret, tail.text()) and not parts(secret, tail.text(hider=Hider({secret})))


@pytest.mark.parametrize("before", [0, 3, 700, 1990, 5000])
@pytest.mark.parametrize("portion", [100, 997, 100_000])
def test_nor_does_one_at_the_edge_of_what_is_kept(before: int, portion: int) -> None:
    """Also where all that is kept is a middle of the secret, and where it had room for a part of the last one."""
    secret = "".join(f"{n:04x}q" for n in range(400))
    said = b"x" * before + (f"a{secret} {secret}\n" * 3).encode() + secret[:1500].encode()
    for limit in (1000, 2500, 4001):
        tail = Tail(limit)
        for start in range(0, len(said), portion):
            tail.add(said[start : start + portion])
        shown = tail.text(hider=Hider({secret}))
        assert HIDDEN in shown and not parts(secret, shown), shown


def test_what_is_shown_is_worked_out_again_when_more_has_come() -> None:
    tail = Tail()
    tail.add(b"one")
    assert [tail.text(), tail.text()] == ["one", "one"]
    tail.add(b" two")
    assert tail.text() == "one two" and tail.text(hider=Hider({"two2", "one two"})) == HIDDEN


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_watchdog_is_not_marked_by_the_pool_that_its_toolscout_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, "outer/1")
    watchdog = Watchdog("inner")
    try:
        environment, given_up = Path(f"/proc/{watchdog.pid}/environ"), time.monotonic() + 10
        while not (said := environment.read_bytes()) and time.monotonic() < given_up:
            time.sleep(0.01)  # empty until it has become the watchdog
        names = {item.partition(b"=")[0] for item in said.split(b"\0")}
        assert MARKER.encode() not in names and b"PATH" in names and os.environ[MARKER] == "outer/1"
    finally:
        watchdog.close()


def test_a_command_in_the_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_program("~/bin/server", None, None) == str(program)
    assert find_program("~/bin/server", "/", None) == str(program), "whatever folder it works in"
