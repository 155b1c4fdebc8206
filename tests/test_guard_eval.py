"""``toolscout eval guard`` on the corpus and on small honest data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import search_pool

from toolscout.cli import execute
from toolscout.eval.guard.measure import half_of, read_attacks
from toolscout.eval.guard.ranking import families, measure_ranking
from toolscout.index.encoder import make_encoder
from toolscout.jsonl import write_records
from toolscout.records import Call
from toolscout.settings import Settings

DATA = Path(__file__).parent / "data" / "eval"
ATTACKS = Path(__file__).parents[1] / "eval" / "data" / "attacks.jsonl"


def test_the_command_reports_detection_alarms_and_time(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    files = ["--tools", str(DATA / "tools.jsonl"), "--servers", str(DATA / "servers.jsonl")]
    assert execute(["eval", "guard", "--attacks", str(ATTACKS), *files, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["detection"]["all"]["n"] == 270
    halves = found["alarms"]["eval/tools.jsonl"]
    assert sum(half["n"] for half in halves.values()) == found["ms_per_tool"]["n"] > 0
    assert all(half["held_back"] == 0 for half in halves.values())


def test_a_line_that_is_no_attack_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "x"}\n')
    assert execute(["eval", "guard", "--attacks", str(bad)]) == 2
    assert "bad.jsonl:1" in capsys.readouterr().err


def test_halves_are_about_even() -> None:
    first = sum(half_of(f"server/tool_{i}") == "first" for i in range(1000))
    assert 430 < first < 570


def test_the_guard_keeps_poisoned_copies_out_of_the_answers(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, starter=False)
    tools, servers = list(search_pool.tools()), list(search_pool.servers())
    calls = [
        Call(id=str(i), query=t.description, gold=[{"tool_id": t.tool_id}])
        for i, t in enumerate(tools)
        if t.description
    ]
    for name, records in (("tools", tools), ("servers", servers), ("calls", calls)):
        write_records(tmp_path / f"{name}.jsonl", records)
    paths = [[tmp_path / f"{name}.jsonl"] for name in ("tools", "servers", "calls")]
    attacks = read_attacks(ATTACKS)
    assert len(families(attacks, {t.tool_id: t for t in tools}, calls)["copied"]) > 3
    found = measure_ranking(attacks, *paths, settings=settings, encoder=make_encoder(settings))["families"]
    for name in ("copied_and_poisoned", "copied_and_stuffed"):
        assert found[name]["before"] > 0.5 and found[name]["after"] == 0
        assert found[name]["held_back"] == found[name]["attackers"]
    assert found["copied"]["held_back"] == 0
