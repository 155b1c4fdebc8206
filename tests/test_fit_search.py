"""Fitting the search's parameters on a few requests over the small pool."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import search_pool

from toolscout.finetune import fit_search
from toolscout.index import fusion
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.index.search import SearchIndex
from toolscout.jsonl import write_records
from toolscout.records import Call, GoldCall
from toolscout.settings import Settings

REQUESTS = {
    "join these pdf files": "acme/pdf/merge_pdfs",
    "what time is it in Lima": "demo/time/get_current_time",
    "will it snow in Bergen": "acme/weather/get_forecast",
    "open an issue on GitHub about the login bug": "acme/github/create_issue",
    "tell the channel that we are late": "acme/slack/post_message",
    "which columns has the table orders": "acme/postgres/describe_table",
    "change 20 pounds into euros": "acme/currency/convert_currency",
    "put this song on my playlist": "acme/spotify/add_to_playlist",
    "make me laugh": None,
    "wash the dishes, please": None,
    "who am I, really": None,
}


def test_fit_writes_parameters_that_search_reads(settings: Settings, tmp_path: Path) -> None:
    with Catalogue(settings.database_url) as catalogue:
        catalogue.merge(search_pool.servers(), search_pool.tools())
        build_index(catalogue, settings)
    calls = [
        Call(id=str(i), query=query, gold=[GoldCall(tool_id=tool_id)] if tool_id else [])
        for i, (query, tool_id) in enumerate(REQUESTS.items())
    ]
    write_records(tmp_path / "calls.jsonl", calls)
    out = tmp_path / "search.json"
    fit_search.main([str(settings.home), str(tmp_path / "calls.jsonl"), "--out", str(out)])
    params = fusion.read_params(out)
    assert all(params.signals[name] >= 0 for name in fit_search.FITTED)
    assert params.signals["tool"] > 0
    assert 0 <= params.threshold < 1
    assert "calls.jsonl: 11 requests" in params.fitted


def test_limits_over_small_pools_come_from_requests_over_installations(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Catalogue(settings.database_url) as catalogue:
        catalogue.merge(search_pool.servers(), search_pool.tools())
        build_index(catalogue, settings)
    installations = {
        "a": ["acme/pdf", "demo/time", "acme/weather", "acme/github"],
        "b": ["acme/slack"],
        "c": ["gone/1"],
    }
    written = {
        "join these pdf files": ("a", "acme/pdf/merge_pdfs"),
        "what time is it in Lima": ("a", "demo/time/get_current_time"),
        "tell the channel that we are late": ("b", "acme/slack/post_message"),
        "put this song on my playlist": ("b", None),
        "make me laugh": ("a", None),
        "merge the two reports into one pdf": ("b", "acme/pdf/merge_pdfs"),  # not in that installation
        "anything": ("c", None),  # whose servers are not in this pool
    }
    everyday = [
        Call(id=str(i), query=query, split=split, gold=[GoldCall(tool_id=tool_id)] if tool_id else [])
        for i, (query, (split, tool_id)) in enumerate(written.items())
    ]
    write_records(tmp_path / "everyday.jsonl", everyday)
    (tmp_path / "installations.json").write_text(json.dumps(installations))
    write_records(
        tmp_path / "calls.jsonl",
        [
            Call(id=str(i), query=query, gold=[GoldCall(tool_id=tool_id)] if tool_id else [])
            for i, (query, tool_id) in enumerate(REQUESTS.items())
        ],
    )
    index = SearchIndex.open(settings.index_dir, settings=settings)
    shapes = fit_search.installed(index, everyday, installations)
    assert [asked.answerable for asked in shapes] == [True, True, True, False, False]
    assert all(asked.hit for asked in shapes[:3]) and not any(asked.hit for asked in shapes[3:])
    sizes = {round(float(np.expm1(asked.shape["pool"]))) for asked in shapes}
    assert max(sizes) < len(index), "over the installation, not the whole"
    out = tmp_path / "search.json"
    command = [str(settings.home), str(tmp_path / "calls.jsonl"), "--out", str(out), "--small-refusals", "0.0"]
    fit_search.main(
        [
            *command,
            "--everyday",
            str(tmp_path / "everyday.jsonl"),
            "--installations",
            str(tmp_path / "installations.json"),
        ]
    )
    params = fusion.read_params(out)
    report = json.loads(capsys.readouterr().out)["abstention_everyday"]
    assert report["auroc"] > 0.8 and report["false_refusals"] == 0.0
    assert {kind: found["n"] for kind, found in report["by_kind"].items()} == {"served": 3, "not served": 2}
    least = min(fusion.probability(asked.shape, params) for asked in shapes if asked.answerable)
    assert params.small_threshold == pytest.approx(least, abs=2e-4)
    assert set(params.calibration) == {"slope", "shift", "small_slope", "small_shift"}
    assert "everyday.jsonl" in params.fitted


def test_platts_scaling_calibrates_and_keeps_the_order() -> None:
    random = np.random.default_rng(0)
    truth = random.uniform(0.02, 0.98, 4000)
    label = random.uniform(size=4000) < truth
    odds = np.log(truth / (1 - truth))
    said = 1 / (1 + np.exp(-(2.5 * odds - 3)))  # too sure, and too low
    slope, shift = fit_search.platt(said, label)
    params = {"slope": slope, "shift": shift}
    mended = np.array([fusion.calibrated(float(p), params) for p in said])
    assert fit_search.calibration_error(said, label) > 0.15 > 0.03 > fit_search.calibration_error(mended, label)
    assert (np.diff(mended[np.argsort(said)]) >= 0).all()
    assert fit_search.platt(1 - said, label)[0] > 0, "never turned round"


def test_logistic_regression_finds_the_separating_feature() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((400, len(fusion.SHAPE)))
    labels = features[:, 0] + 0.1 * random.standard_normal(400) > 0.3
    weights, bias = fit_search.fit_abstention(features, labels, np.ones(400))
    chance = 1 / (1 + np.exp(-(features @ weights + bias)))
    assert fit_search.auroc(chance, labels) > 0.97
    assert weights[0] > 5 * np.abs(weights[1:]).max()
    assert abs(float(chance.mean()) - float(labels.mean())) < 0.02, "calibrated in the large"


def test_auroc_counts_ties_half() -> None:
    labels = np.array([True, True, False, False])
    assert fit_search.auroc(np.array([3.0, 2.0, 1.0, 0.0]), labels) == 1.0
    assert fit_search.auroc(np.array([1.0, 1.0, 1.0, 1.0]), labels) == 0.5
    assert fit_search.auroc(np.array([2.0, 0.0, 1.0, 1.0]), labels) == pytest.approx(0.5)
