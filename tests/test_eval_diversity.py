"""``toolscout eval diversity``: samples, distance, near copies, the page."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscout.cli import execute
from toolscout.errors import BadInput, NotFound
from toolscout.eval.diversity.measure import measure_diversity, near_copies, parse_sets
from toolscout.eval.diversity.report import diversity_report
from toolscout.eval.plots import NO_PLOTS
from toolscout.synth.report_facts import SAMPLE
from toolscout.synth.report_rows import Row

WORDS = ["book", "send", "list", "find", "open", "close", "translate", "weather", "invoice", "note", "kettle"]
WORDS += ["route", "tea", "file", "chart"]


class Directions:
    """Texts that begin alike have one vector, others one at a right angle."""

    dim = 16

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        return np.eye(16, dtype=np.float32)[[WORDS.index(text.split()[0]) for text in texts]]


def lines(path: Path, texts: Sequence[str], server: str = "one") -> Path:
    rows = [{"id": f"r{n}", "query": t, "gold": [{"tool_id": f"{server}/{t.split()[0]}"}]} for n, t in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_distance_is_that_of_all_pairs(tmp_path: Path) -> None:
    same = lines(tmp_path / "same.jsonl", [f"send {n} kettles to number {n * 977}" for n in range(8)])
    half = lines(tmp_path / "half.jsonl", [f"{WORDS[n % 2]} thing {n * 977}" for n in range(8)])
    result = measure_diversity({"same": [same], "half": [half]}, Directions()).result  # type: ignore[arg-type]
    first, second = result["sets"]
    assert first["mean_cosine_distance"] == 0 and first["distance_95"] == [0, 0] and first["tools"] == 1
    assert second["mean_cosine_distance"] == round(16 / 28, 4), "16 of 28 pairs are of two kinds"
    assert (second["requests"], second["sampled"], second["tools"], second["servers"]) == (8, 8, 2, 1)
    assert second["words"]["p50"] == 3 and len(result["warnings"]) == 2 and "plots" not in result


def test_samples_are_the_same_whatever_the_order_and_sets_may_have_several_files(tmp_path: Path) -> None:
    texts = [f"{WORDS[n % 15]} number {n}" for n in range(1200)]
    forward = lines(tmp_path / "a.jsonl", texts)
    rows = forward.read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_text("".join(rows[:500:-1]), "utf-8")
    (tmp_path / "c.jsonl").write_text("".join(rows[500::-1]), "utf-8")
    sets = parse_sets([f"one={forward}", f"two={tmp_path / 'b.jsonl'}", f"two={tmp_path / 'c.jsonl'}"])
    run = measure_diversity(sets, Directions())  # type: ignore[arg-type]
    one, two = run.result["sets"]
    assert one["sampled"] == SAMPLE and one["all"] == {"tools": 15, "servers": 1}
    assert {**one, "name": ""} == {**two, "name": ""} and run.warnings == []
    assert len(run.rows) == 2 * SAMPLE


def test_near_copies_count_those_that_come_after() -> None:
    texts = [
        "Book a table for two in Rome tonight",
        "book a table for two in rome, tonight!",
        "Something else entirely",
    ]
    rows = [Row(str(n), text) for n, text in enumerate([*texts, texts[0]])]
    assert near_copies(rows, 0.8) == {1: (0, 1.0), 3: (0, 1.0)}


def test_rows_without_ids_are_drawn_too(tmp_path: Path) -> None:
    path = tmp_path / "bare.jsonl"
    path.write_text("".join(json.dumps({"query": f"tea {n}"}) + "\n" for n in range(3)), "utf-8")
    run = measure_diversity({"bare": [path]}, Directions())  # type: ignore[arg-type]
    assert sorted(row["id"] for row in run.rows) == ["bare.jsonl:0", "bare.jsonl:1", "bare.jsonl:2"]
    assert run.result["sets"][0]["tools"] == 0


@pytest.mark.parametrize("pair", ["calls.jsonl", "=calls.jsonl", "name="])
def test_pairs_that_are_none(pair: str) -> None:
    with pytest.raises(BadInput, match="is not NAME=FILE"):
        parse_sets([pair])


def test_files_without_requests(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(BadInput, match="hold no request"):
        measure_diversity({"x": [tmp_path / "empty.jsonl"]}, Directions())  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        measure_diversity({"x": [tmp_path / "none.jsonl"]}, Directions())  # type: ignore[arg-type]


def test_the_command_writes_its_page(tmp_path: Path) -> None:
    one = lines(tmp_path / "one.jsonl", [f"{w} something <b> for {v}" for w in WORDS[:3] for v in WORDS[:2]])
    two = lines(tmp_path / "two.jsonl", [f"{w} it" for w in WORDS[5:9]], server="x/y")
    out, report = tmp_path / "out.json", tmp_path / "report"
    command = [
        "eval",
        "diversity",
        "--calls",
        f"$one^{{={one}",
        f"two={two}",
        "--json",
        str(out),
        "--report",
        str(report),
    ]
    assert execute([*command, "--quiet"]) == 0
    result = json.loads(out.read_text("utf-8"))
    assert [part["name"] for part in result["sets"]] == ["$one^{", "two"] and result["encoder"] == "default"
    assert all(0 < part["mean_cosine_distance"] < 1 for part in result["sets"])
    assert result["plots"]["PCA"] == "drawn" and "at least 50" in result["plots"]["t-SNE"]
    page = (report / "report.html").read_text("utf-8")
    assert "How various requests are" in page and "encoder: default" in page and "svg{max-width:100%" in page
    assert page.count("<svg") == 2 and "<b>" not in page
    assert (report / "planes.png").stat().st_size > 5000 and (report / "diversity.png").exists()
    assert len((report / "rows.jsonl").read_text("utf-8").splitlines()) == 10
    assert json.loads((report / "result.json").read_text("utf-8")) == result


def test_without_matplotlib_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lines(tmp_path / "one.jsonl", [f"{w} it" for w in WORDS[:5]])
    run = measure_diversity({"one": [path]}, Directions(), plots=True)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert diversity_report(run, tmp_path / "report").read_text("utf-8").count(NO_PLOTS) == 2
