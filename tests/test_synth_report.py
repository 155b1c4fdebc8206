"""The page of a run: what it counts, that it can be made at any time, and that foreign text stays text."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synth_endpoint import TOOLS, Endpoint, Serve
from test_synth_pipeline import PLAIN, make

from toolscout.cli import execute
from toolscout.jsonl import write_records
from toolscout.records import Call, GoldCall
from toolscout.synth import report_page, report_plots
from toolscout.synth.drafts import SynthCall
from toolscout.synth.report_charts import GROUPS, cloud, histogram, text
from toolscout.synth.report_facts import bins, mean_distance
from toolscout.synth.report_folder import read_run
from toolscout.synth.report_page import write_page
from toolscout.synth.report_plots import ENOUGH, pca, planes, tsne, umap

assert Endpoint  # the fixture `serve` opens this one

EVIL = "</td><script>alert(1)</script><img src=http://evil.test/x onerror=alert(2)> \"'& \u202edesrever\u200b\x00"


class Page(HTMLParser):
    """A page as a browser reads it: tags, addresses, handlers, names and text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.said = ""
        self.unnamed = 0
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        given = dict(attrs)
        if tag == "svg" and not (given.get("aria-label") or "aria-hidden" in given):
            self.unnamed += 1

    def handle_data(self, data: str) -> None:
        self.said += data


def test_a_run_writes_its_page(serve: Serve, tmp_path: Path) -> None:
    result = make(serve(), tmp_path, filters=(*PLAIN, "judge"), price_in=2.0, price_out=3.0)
    page = Page(tmp_path / "report.html")
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags) and page.unnamed == 0
    assert not [a for a in page.attributes if a[0] in ("src", "srcset") or a[0].startswith("on")]
    assert {v for n, v in page.attributes if n == "href"} <= {f"#{v}" for n, v in page.attributes if n == "id"}
    assert "needed no encoder" in page.said and "a score below 6 of 10" in page.said
    found = write_page(tmp_path)
    assert found["finished"] and found["kept"]["calls"] == len(result.calls)
    same = [{k: v for k, v in s.items() if k not in ("waiting",)} for s in found["steps"]]
    assert same == result.report["steps"], "what is read from the files is what the run counted"
    assert found["spent"] == result.report["spent"]["by_model"]
    assert f"{found['spent']['first-model']['prompt_tokens']:,}" in page.said


def test_of_a_killed_run(serve: Serve, tmp_path: Path, capsys: Any) -> None:
    make(serve(), tmp_path / "whole", filters=PLAIN)
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    shutil.copytree(whole, killed)
    for name in ("calls.jsonl", "report.html"):
        (killed / name).unlink()
    # as a kill in the middle of the evolution leaves it: later files are of an earlier, larger run
    report = json.loads((killed / "report.json").read_text())
    (killed / "report.json").write_text(json.dumps({**report, "finished": False, "steps": [], "kept": None}))
    lines = (killed / "03-evolve.jsonl").read_text().splitlines(keepends=True)
    (killed / "03-evolve.jsonl").write_text("".join(lines[:4]) + lines[4][:30])
    words = ["synth", "report", str(killed), "--json"]
    assert execute(words) == 0
    found = json.loads(capsys.readouterr().out)
    steps = {s["step"]: s for s in found["steps"]}
    assert not found["finished"] and steps["generate"]["waiting"] == 0
    assert (steps["evolve"]["inputs"], steps["evolve"]["waiting"]) == (4, len(lines) - 4)
    assert steps["translate"]["inputs"] == steps["evolve"]["made"], "what no longer belongs is not counted"
    assert found["kept"]["mean_cosine_distance"] > 0
    assert "has not come to its end" in Page(killed / "report.html").said
    assert json.loads((killed / "report.json").read_text())["finished"] is False, "the folder is only read"


def test_a_finished_folder_that_is_begun_again_says_so(serve: Serve, tmp_path: Path) -> None:
    make(serve(), tmp_path, filters=PLAIN)
    broken = serve(lambda body: (400, {"error": "no"}, {}))
    with pytest.raises(Exception, match="all 5 inputs are refused by the endpoint"):
        make(broken, tmp_path, filters=PLAIN, instructions=7)
    assert not read_run(tmp_path).finished


def test_compared_with_other_files(serve: Serve, tmp_path: Path, capsys: Any) -> None:
    make(serve(), tmp_path / "run", filters=PLAIN)
    alike = [Call(id=f"c{n}", query="What is the weather in Oslo?") for n in range(5)]
    write_records(tmp_path / "alike.jsonl", alike)
    page = tmp_path / "page.html"
    words = ["synth", "report", str(tmp_path / "run"), "--compare", str(tmp_path / "alike.jsonl")]
    assert execute([*words, "--html", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compared"][0]["mean_cosine_distance"] == pytest.approx(0, abs=1e-3)
    said = page.read_text()
    assert "alike.jsonl" in said and str(tmp_path) not in said, "no path of this machine"
    assert execute([*words, str(tmp_path / "none.jsonl")]) == 2 or "none.jsonl" in capsys.readouterr().err
    assert execute(["synth", "report", str(tmp_path)]) == 2 and "no run" in capsys.readouterr().err


def test_foreign_text_stays_text(tmp_path: Path) -> None:
    call = SynthCall(
        id="x", query=EVIL, gold=[GoldCall(tool_id=f"m/{EVIL}/t", arguments={EVIL: EVIL})], lang=EVIL,
        directions=[EVIL], scores={EVIL: 1.0},
    )  # fmt: skip
    write_records(tmp_path / "kept.jsonl", [call.model_copy(update={"id": f"x{n}"}) for n in range(4)])
    line = {"id": EVIL, "mark": "", "made": [], "dropped": [{"reason": EVIL, "detail": EVIL, "text": EVIL}]}
    (tmp_path / "06-schema.jsonl").write_text(json.dumps(line) + "\n")
    report = {"finished": True, EVIL: EVIL, "models": {EVIL: EVIL}, "settings": {EVIL: EVIL}, "left_out": {EVIL: 3}}
    report["spent"] = {"by_model": {EVIL: {"requests": 1, "price": 0.1}}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    write_page(tmp_path, encoder=Letters(), categories={f"m/{EVIL}": EVIL})
    page = Page(tmp_path / "report.html")
    assert not {"script", "img"} & set(page.tags) and "<script>alert(1)</script>" in page.said
    assert not [a for a in page.attributes if a[0].startswith("on") or a[0] == "src"]
    assert not set("\u202e\u200b\x00") & set((tmp_path / "report.html").read_text())


class Letters:
    """An encoder of four numbers, by the text's hash: enough for a plot."""

    fingerprint, dim = "letters", 4

    def encode(self, texts: Any, *, kind: str = "document") -> Any:
        made = np.array([[len(t), ord(t[0]), n + 1, 7] for n, t in enumerate(texts)], dtype=np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)


@given(st.text())
def test_text_is_harmless(value: str) -> None:
    assert not re.search("[<>\"'\x00\u202e]", text(value))
    assert text("می‌خواهم") == "می‌خواهم"


@given(st.lists(st.one_of(st.integers(0, 10**6), st.floats(-10, 10)), max_size=60))
def test_histograms_lose_nothing(values: list[float]) -> None:
    found = bins(values)
    assert sum(count for _, count in found) == len(values) and len(found) <= 31
    assert histogram("Length", "words", found).count("<rect") == len(found)
    labels = [label for label, _ in bins([float(round(v)) for v in values])]
    assert len(labels) == len(set(labels))


def test_the_distance_is_that_of_all_pairs() -> None:
    draws = np.random.default_rng(0)
    vectors = draws.normal(size=(60, 5)) + 0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = mean_distance(vectors)
    assert found is not None and mean_distance(vectors[:1]) is None
    pairs = [1 - vectors[i] @ vectors[j] for i in range(60) for j in range(i)]
    assert found[0] == pytest.approx(np.mean(pairs))
    again = []
    for _ in range(200):
        other = draws.normal(size=(60, 5)) + 0.5
        made = mean_distance(other / np.linalg.norm(other, axis=1, keepdims=True))
        assert made is not None
        again.append(made[0])
    assert 1.96 * np.std(again) == pytest.approx(found[1], rel=0.4), "the interval is that of another draw"


def test_planes_of_what_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.vstack([np.eye(6)[n % 3] * 3 + np.random.default_rng(n).normal(size=6) * 0.1 for n in range(ENOUGH)])
    made = pca(vectors)
    assert made.points is not None
    centres = [made.points[n::3].mean(axis=0) for n in range(3)]
    assert min(np.linalg.norm(centres[a] - centres[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > 2
    assert [p.points is None for p in planes(vectors[:10])] == [False, True, True]
    assert pca(vectors[:2]).points is None and pca(np.ones((9, 4))).points is not None
    drawn = cloud("PCA", "", made.points, [n % (GROUPS + 2) for n in range(ENOUGH)], [EVIL] * ENOUGH)
    assert drawn.count("<g ") == ENOUGH and "<script" not in drawn
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    monkeypatch.setitem(sys.modules, "umap", None)
    assert "scikit-learn" in tsne(vectors).why_not and "umap-learn" in umap(vectors).why_not


def test_a_library_that_breaks_costs_its_plot_and_no_run(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(vectors: Any) -> Any:
        raise SystemError("numba:\n  no such target.")

    monkeypatch.setattr(report_plots, "umap", breaks)
    result = make(serve(), tmp_path / "a", filters=(*PLAIN, "resembles"))
    said = ["UMAP is not in the page. It could not be drawn: SystemError: numba: no such target."]
    assert result.report["finished"] and result.report["remarks"] == said
    assert json.loads((tmp_path / "a/report.json").read_text())["remarks"] == said
    assert said[0].partition(". ")[2] in Page(tmp_path / "a/report.html").said
    monkeypatch.setattr(report_page, "planes", breaks)
    result = make(serve(), tmp_path / "b", filters=(*PLAIN, "resembles"))
    assert result.calls and "report.html could not be made: SystemError" in result.report["remarks"][0]


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "library"), [(tsne, "sklearn"), (umap, "umap")])
def test_neighbours_stay_neighbours(draws: Any, library: str) -> None:
    pytest.importorskip(library)
    vectors = np.vstack([np.eye(6)[n % 3] + np.random.default_rng(n).normal(size=6) * 0.05 for n in range(90)])
    made = draws(vectors).points
    gaps = np.linalg.norm(made[:, None] - made[None], axis=2) + np.eye(90) * 1e9
    assert (gaps.argmin(axis=1) % 3 == np.arange(90) % 3).mean() > 0.95


def test_the_tools_of_the_tests_have_no_category(serve: Serve, tmp_path: Path) -> None:
    make(serve(), tmp_path, filters=PLAIN)
    known = {TOOLS[0].server_id: "Weather"}
    assert write_page(tmp_path, categories=known)["kept"]["by_category"]["Weather"] > 0
    assert write_page(tmp_path)["kept"]["by_category"].keys() == {"none"}
