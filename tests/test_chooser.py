"""The choice among a few tools: odds that sum to one, none where nothing fits, a fit that learns what the data says."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscout.finetune import fit_choice
from toolscout.finetune.fit_choice import Draw, fit, report
from toolscout.index.chooser import Chooser, logits, probabilities
from toolscout.index.encoder import OnnxEncoder, make_encoder
from toolscout.index.fusion import SearchParams, params_for, read_params, write_params
from toolscout.jsonl import write_records
from toolscout.records import Call, GoldCall, Tool
from toolscout.settings import Settings


def tool(name: str, description: str, server: str = "acme") -> Tool:
    return Tool(tool_id=f"{server}/{name}", server_id=server, name=name, description=description)


WEATHER = tool("get_forecast", "Weather forecast for a city: temperature, rain, wind.")
COMMITS = tool("git_log", "Shows the latest commits of a git repository.")
RATES = tool("convert_currency", "Converts an amount from one currency to another at today's rate.")
TOOLS = [WEATHER, COMMITS, RATES]


class Counting:
    """The shipped encoder; counts the documents that it reads."""

    def __init__(self) -> None:
        self.own: Any = make_encoder(Settings())
        self.card, self.folder = self.own.card, self.own.folder
        self.read = 0

    def encode(self, texts: Sequence[str], *, kind: Any = "document") -> Any:
        self.read += len(texts) if kind == "document" else 0
        return self.own.encode(texts, kind=kind)


def test_the_right_tool_is_chosen_and_none_where_nothing_fits() -> None:
    chooser = Chooser(make_encoder(Settings()))
    for index, task in enumerate(("will it rain in Lima on Friday", "show me the last commits", "200 euros in yen")):
        odds = chooser.odds(task, TOOLS)
        assert len(odds) == 4 and sum(odds) == pytest.approx(1)
        assert int(np.argmax(odds)) == index
    odds = chooser.odds("thanks, that was lovely of you", TOOLS)
    assert odds[-1] >= chooser.none_at
    assert chooser.odds("hello", [])[-1] == 1.0


def test_a_tools_text_is_read_once() -> None:
    encoder: Any = Counting()
    chooser = Chooser(encoder)
    first = chooser.odds("200 euros in yen", TOOLS)
    read = encoder.read
    assert read == len(TOOLS) + 1, "the tools and the document for none"
    assert chooser.odds("200 euros in yen", TOOLS) == first and encoder.read == read


def test_more_candidates_make_none_neither_certain_nor_impossible() -> None:
    params = {"cosine": 10.0, "none": 3.0, "nothing": 0.0, "size": 1.0}
    assert logits([0.5, 0.1], 0.9, params) == pytest.approx([5.0, 1.0, 3.0 + math.log(2)])
    assert probabilities([0.0, 0.0]) == [0.5, 0.5] and sum(probabilities([1000.0, -1000.0])) == 1.0


def test_what_the_shipped_encoder_weighs_was_fitted() -> None:
    choice = params_for(make_encoder(Settings())).choice
    assert choice["cosine"] > 5 and 0.3 < choice["none_at"] < 1


def test_the_fit_finds_the_weights_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    true = {"cosine": 12.0, "none": 4.0, "nothing": 2.0, "size": 0.5}
    rows = []
    for _ in range(6000):
        cosines, nothing = list(rng.uniform(0, 0.8, rng.integers(1, 12))), float(rng.uniform(-0.5, 0.9))
        odds = probabilities(logits(cosines, nothing, true))
        rows.append(Draw(cosines, nothing, int(rng.choice(len(odds), p=odds)), False))
    found = fit(rows)
    assert found == pytest.approx(true, abs=0.6)
    said = report(rows, {**found, "none_at": 0.5})
    assert said["draws"] == 6000 and 0 < said["right_refusals_absent"] < 1 and said["right_tool_first"] > 0.5


def test_the_command_writes_the_choice_and_keeps_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = make_encoder(Settings())
    assert isinstance(shipped, OnnxEncoder)
    for file in shipped.folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "search.json").unlink()
    write_params(tmp_path / "search.json", SearchParams(bias=0.25))
    asked = ["rain in Oslo tomorrow", "who committed last", "10 dollars in pounds"]
    calls = [
        Call(id=str(i), query=q, gold=[GoldCall(tool_id=t.tool_id)])
        for i, (q, t) in enumerate(zip(asked, TOOLS, strict=True))
    ]
    calls.append(Call(id="x", query="good night", gold=[]))
    write_records(tmp_path / "calls.jsonl", calls)
    write_records(tmp_path / "tools.jsonl", TOOLS)
    fit_choice.main([str(tmp_path), str(tmp_path / "calls.jsonl"), "--tools", str(tmp_path / "tools.jsonl")])
    params = read_params(tmp_path / "search.json")
    assert params.bias == 0.25 and set(params.choice) == {"cosine", "none", "nothing", "size", "none_at"}
    assert json.loads(capsys.readouterr().out)["fitted_on"]["right_tool_first"] > 0.5
