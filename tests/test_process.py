"""What is kept of an upstream's stderr, and what the watchdog is told."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from toolscout.server.process import Tail
from toolscout.server.secrets import redact
from toolscout.server.watchdog import MARKER, Watchdog


def test_a_secret_at_the_cut_is_hidden_whole() -> None:
    tail = Tail()
    tail.add(b"the key is s3cr3t-value-of-some-length and then " + b"x" * 40)
    shown = tail.text(characters=60, clean=lambda text: redact(text, {"s3cr3t-value-of-some-length"}))
    assert "length" not in shown and shown.endswith("x" * 40)
    assert "length" in tail.text(characters=60)


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
