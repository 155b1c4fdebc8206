"""The fault and crash benches work: their judge is not fooled, and a short run of each passes on what is here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from chaos.clients import LoadClient  # noqa: E402
from chaos.judge import judged, raised  # noqa: E402
from chaos.tally import Tally  # noqa: E402
from chaos.watch import growth  # noqa: E402

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def result(text: str, structured: Any = None, error: bool = False) -> Any:
    return SimpleNamespace(content=[SimpleNamespace(text=text)], structured_content=structured, is_error=error)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (result("n-7", {"nonce": "n-7"}), "ok"),
        (result("n-8", {"nonce": "n-8"}), "wrong"),
        (result("n-7", {"nonce": "n-8"}), "wrong"),
        (result("nothing"), "wrong"),
        (result("'a' did not answer 'echo' within 4 s; it was told to stop.", error=True), "error"),
        (result("'a' did not answer 'echo' within 4 s. Another said n-8.", error=True), "wrong"),
        (result("", error=True), "untyped"),
        (result("ValueError: x", error=True), "untyped"),
        (result("Toolscout failed inside invoke: KeyError.", error=True), "untyped"),
        (result("something else went amiss", error=True), "untyped"),
    ],
)
def test_the_judge(given: Any, outcome: str) -> None:
    assert judged("invoke", "n-7", given)[0] == outcome


def test_the_judge_of_protocol_errors() -> None:
    assert raised(-32602, "Unknown tool")[0] == "error"
    assert raised(-32603, "Internal error")[0] == "untyped"
    assert raised(None, "")[0] == "untyped"


def test_a_back_off_in_calm_may_last_as_long_as_its_first_refusal_says() -> None:
    tally = Tally()
    tally.quiet_since = tally.now()
    world: Any = SimpleNamespace()

    def violations(upstream: str, wait: float, stdio: bool = False) -> int:
        tally.violations.clear()
        client = over_stdio if stdio else over_http
        text = f"'{upstream}' failed 3 times in a row and is left alone for another {wait} s. Last: it exited"
        client._note("invoke", upstream, "error", "left_alone", text, "", True, 5.0)
        return len(tally.violations)

    over_http, over_stdio = (LoadClient(n, world, tally, 1, stdio=bool(n)) for n in range(2))
    assert violations("alpha", 1.0) == 1  # one process for all: whoever lifted the fault has tried it
    for stdio in (False, True):
        assert violations("gamma", 2.0, stdio) == violations("gamma", 1.9, stdio) == 0
        assert violations("gamma", 4.0, stdio) == 1  # it has failed again


def test_a_held_tool_over_stdio_may_be_refused_until_its_server_is_listed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tally, world = Tally(), SimpleNamespace()
    tally.quiet_since, passed = tally.now(), [100.0]
    monkeypatch.setattr(tally, "now", lambda: passed[0])
    over_http, early, late = (LoadClient(n, world, tally, 1, stdio=bool(n)) for n in range(3))  # type: ignore[arg-type]

    def violations(client: LoadClient, outcome: str, seconds: float) -> int:
        tally.violations.clear()
        passed[0] += seconds
        client._note("invoke", "gamma", outcome, "not_approved", "It is quarantined.", "", True, 5.0)
        return len(tally.violations)

    assert violations(over_http, "error", 0) == 1
    assert [violations(early, "error", seconds) for seconds in (0, 3, 2)] == [0, 0, 1]
    assert [violations(late, outcome, 0) for outcome in ("ok", "error")] == [0, 1]


def test_growth_is_seen() -> None:
    flat = growth([(float(t), 200.0, 50) for t in range(30)])
    assert flat["mb_early"] == flat["mb_late"] == 200
    rising = growth([(float(t), 200.0 + 50 * t, 50 + t) for t in range(30)])
    assert rising["mb_late"] > 1.5 * rising["mb_early"] + 100


def run(name: str, out: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), "--json", str(out), *options],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert out.exists(), done.stderr
    return done.returncode, done.stdout + done.stderr, json.loads(out.read_text())


@linux
@pytest.mark.slow
def test_a_short_run_of_faults(tmp_path: Path) -> None:
    kinds = ("upstream_killed", "upstream_drops", "model_nonsense", "database_locked", "client_gone_stdio")
    clients = ("--http-clients", "2", "--stdio-clients", "1")
    code, said, report = run("faults.py", tmp_path / "out.json", "--minutes", "0.8", *clients, "--only", *kinds)
    assert code == 0, said
    assert sum(report["faults"].values()) >= 3
    assert report["outcomes"] and report["violations"] == []


@linux
@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    code, said, report = run("crash.py", tmp_path / "out.json", "--points", "4", "--only", "review", "index")
    assert code == 0, said
    assert {kind: found["points"] for kind, found in report["commands"].items()} == {"review": 2, "index": 2}
