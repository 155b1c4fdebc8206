"""``toolscout eval servers``: groups by what tools do, what is known of each server, and the health that ranks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscout.cli import execute
from toolscout.errors import BadInput, NotFound
from toolscout.eval.servers.facts import Evidence, from_executed, from_log, healths, quality
from toolscout.eval.servers.groups import groups, likenesses, read_groups
from toolscout.eval.servers.measure import best
from toolscout.index.build import build_index
from toolscout.index.catalogue import CallLog, Catalogue
from toolscout.index.health import Health, read_health, write_health
from toolscout.index.search import SearchIndex
from toolscout.records import JsonObject, Server, Tool
from toolscout.settings import Settings


def tool(server: str, name: str, description: str = "", **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties}
    return Tool(
        tool_id=f"{server}/{name}", server_id=server, name=name, description=description, input_schema=schema
    )  # fmt: skip


TEXT = {"type": "string", "description": "The city."}
WEATHER = "Get the weather forecast of a city for the next days."
TOOLS = [
    tool("sunny", "get_forecast", WEATHER, city=TEXT, days={"type": "integer"}),
    tool("sunny", "get_alerts", "Get the weather alerts of a region.", region=TEXT),
    tool("cloudy", "get_forecast", WEATHER, city={}),
    tool("cloudy", "get_alerts", "Get the weather alerts of a region.", region={}),
    tool("ledger", "create_invoice", "Create an invoice for a customer.", customer=TEXT),
    tool("chess", "best_move", "Find the best move of a chess position.", fen=TEXT),
]


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(row.to_json() + "\n" for row in rows), "utf-8")
    return path


def executed(path: Path, **parts: tuple[int, int, dict[str, int], float]) -> Path:
    found = {
        name: {"made": made, "went_well": well, "by_cause": causes, "seconds": {"p50": p50, "p95": p50}}
        for name, (made, well, causes, p50) in parts.items()
    }
    path.write_text(json.dumps({"by_server": found}))
    return path


def test_from_files_to_a_page_and_a_health_file(tmp_path: Path) -> None:
    servers = [
        Server(server_id="sunny", name="<i>Sunny", popularity=10),
        Server(server_id="cloudy", name="Cloudy", popularity=900),
    ]
    one = executed(tmp_path / "1.json", sunny=(10, 9, {"empty_result": 1}, 0.2), cloudy=(4, 2, {"api_error": 2}, 1.0))
    two = executed(tmp_path / "2.json", cloudy=(6, 3, {"parameter_error": 3}, 2.0))
    out, health = tmp_path / "out.json", tmp_path / "health.json"
    command = ["eval", "servers", "--tools", str(lines(tmp_path / "tools.jsonl", TOOLS)), "--servers"]
    command += [str(lines(tmp_path / "servers.jsonl", servers)), "--executed", str(one), str(two), "--health"]
    command += [str(health), "--json", str(out), "--report", str(tmp_path / "report"), "--quiet"]
    assert execute(command) == 0
    result = json.loads(out.read_text())
    assert result["n"] == {"servers": 4, "tools": 6, "groups": 1, "grouped": 2} and result["calls"] == 20
    (group,) = result["groups"]
    sunny, cloudy = group["servers"]
    assert (sunny["server_id"], cloudy["server_id"]) == ("sunny", "cloudy"), "the healthier first"
    assert (sunny["success_rate"], cloudy["success_rate"]) == (0.9, 0.5)
    assert cloudy["by_cause"] == {"api_error": 2, "parameter_error": 3} and cloudy["seconds"] == 1.6
    assert (sunny["tools"], sunny["parameters"], cloudy["parameters"]) == (2, 3, 2)
    assert sunny["quality"]["parameters_described"] == round(2 / 3, 4) and sunny["quality"]["parameters_typed"] == 1
    assert cloudy["quality"]["score"] == round(1 / 3, 4) and sunny["tokens"] > cloudy["tokens"]
    assert group["best"]["popularity"] == ["cloudy"] and group["best"]["seconds"] == ["sunny"]
    assert group["best"]["tools"] == [], "both have as many"
    assert group["pairs"][0]["overlap"] == 1 and len(group["pairs"][0]["tools"]) == 2
    # 17 of cloudy's and sunny's calls that were the servers' to answer: 10 of 10, and 5 of 7
    average = 15 / 17
    found = read_health(health)
    assert found.mean == round(average, 4) and set(found.servers) == {"sunny", "cloudy"}
    assert found.servers["sunny"].health == round((10 + 5 * average) / 15, 4)
    assert found.servers["cloudy"] == Health(health=round((5 + 5 * average) / 12, 4), calls=7)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<h2>The largest groups</h2>" in page
    assert "get_forecast" in page and "<i>Sunny" not in page
    # groups of one's own
    (tmp_path / "g.json").write_text('{"odd <b>pair": ["ledger", "chess"]}')
    assert execute([*command, "--groups", str(tmp_path / "g.json")]) == 0
    result = json.loads(out.read_text())
    assert result["groups"][0]["servers"][0]["success_rate"] is None and result["groups_from"] == "file"
    assert "odd &lt;b&gt;pair" in (tmp_path / "report" / "report.html").read_text()


def test_no_calls_no_health(tmp_path: Path, capsys: Any) -> None:
    tools = lines(tmp_path / "tools.jsonl", TOOLS[:1])
    assert execute(["eval", "servers", "--tools", str(tools), "--health", str(tmp_path / "h.json"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "no health to write" in said and not (tmp_path / "h.json").exists()
    assert execute(["eval", "servers", "--tools", str(tools), "--health", str(tmp_path / "h.json")]) == 2
    assert "comparing" not in capsys.readouterr().err, "that is known before anything is compared"


def test_an_empty_home_says_what_to_do(home: Path, capsys: Any) -> None:
    assert execute(["eval", "servers"]) == 3
    assert "toolscout import" in capsys.readouterr().err


def test_groups_are_alike_two_by_two() -> None:
    """b is like a and like c, but a and c share nothing; d has one tool of three in common with a."""
    names = {"a": "12", "b": "1234", "c": "34", "d": "156"}
    tools = [tool(server, f"t{n}") for server, which in names.items() for n in which]
    vectors = np.stack([np.eye(6, dtype=np.float32)[int(t.name[1:]) - 1] for t in tools])
    pairs = likenesses(tools, vectors)
    assert {(p.one, p.other): round(p.overlap, 2) for p in pairs} == {("a", "b"): 1.0, ("a", "d"): 0.5, ("b", "c"): 1.0}
    assert groups(pairs) == [["a", "b"]], "c is not like a"
    assert likenesses(tools, vectors, overlap=0.3)[-1].overlap == pytest.approx(1 / 3)
    # one tool that is near to all is the partner of one only
    many = [tool("a", "x"), *(tool("b", f"y{n}") for n in range(4))]
    near = np.tile(np.array([[1.0, 0.0]], dtype=np.float32), (5, 1))
    (pair,) = likenesses(many, near)
    assert len(pair.tools) == 1


def test_health_counts_what_is_the_servers_to_answer() -> None:
    evidence = {
        "good": Evidence(made=95, went_well=95),
        "clumsy": Evidence(made=5),
        "down": Evidence(made=5),
    }
    evidence["clumsy"].causes.update({"parameter_error": 5})
    evidence["down"].causes.update({"session_error": 5})
    found, average = healths(evidence)
    assert average == 0.95 and "clumsy" not in found
    assert found["good"].health == pytest.approx((95 + 4.75) / 100, abs=1e-4)
    assert found["down"].health == pytest.approx(4.75 / 10, abs=1e-4)
    assert healths({"clumsy": evidence["clumsy"]}) == ({}, None)


def test_a_server_that_answers_nothing_is_not_quick(tmp_path: Path) -> None:
    found = from_executed(
        [executed(tmp_path / "1.json", dead=(8, 0, {"session_error": 8}, 0.03), well=(3, 2, {}, 0.5))]
    )
    assert found["dead"].median is None and found["well"].median == 0.5


def test_evidence_of_the_call_log() -> None:
    log = [
        CallLog("invoke", "", "sunny/get_forecast", "ok", 100.0),
        CallLog("invoke", "", "sunny/get_forecast", "error", 300.0),
        CallLog("find", "weather", "sunny/get_forecast", "ok", 5.0),
        CallLog("invoke", "", "gone/tool", "ok", 1.0),
    ]
    found = from_log(log, {"sunny/get_forecast": "sunny"})
    assert set(found) == {"sunny"} and found["sunny"].success_rate == 0.5 and found["sunny"].median == 0.1


def test_quality_of_texts() -> None:
    bare = quality([tool("s", "get_rain", "Get rain.", city={})])
    assert bare["described"] == 0 and bare["parameters_typed"] == 0 and bare["score"] == 0
    plain = quality([tool("s", "now", "Tells the time.")])
    assert plain == {"score": 1, "described": 1, "parameters_described": None, "parameters_typed": None, "outputs": 0}
    assert quality([])["score"] is None


def test_best_needs_a_difference() -> None:
    def row(name: str, **more: Any) -> JsonObject:
        return {"server_id": name, "right": None, "success_rate": None, "health": None, "quality": {"score": 0.5},
                "tools": 1, "parameters": 1, "popularity": None, "seconds": None, "tokens": 5, **more}  # fmt: skip

    found = best([row("a", seconds=2.0, tools=3), row("b", seconds=1.0, tokens=7), row("c", success_rate=0.4)])
    assert found["seconds"] == ["b"] and found["tokens"] == ["a", "c"] and found["tools"] == ["a"]
    assert found["success_rate"] == [] and found["quality"] == []


def test_what_came_out_right_is_a_thing_apart_from_what_went_well(tmp_path: Path) -> None:
    """Every call of a goes well and one in four is right; results of an older version do not say."""
    part = {"made": 4, "went_well": 4, "by_cause": {}, "seconds": {"p50": 0.1}}
    for name, more in (("new", {"outcomes": {"a": {"n": 4, "right": 0.25, "interval": [0, 1]}}}), ("old", {})):
        (tmp_path / name).write_text(json.dumps({"by_server": {"a": part}, **more}), "utf-8")
    found = from_executed([tmp_path / "new", tmp_path / "old"])["a"]
    assert (found.made, found.success_rate, found.outcomes, found.right) == (8, 1.0, 4, 1.0)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("[]", '{"by_server": {"a": {}}}', "{"):
        path.write_text(text)
        with pytest.raises(BadInput, match="no result of eval execute"):
            from_executed([path])
        with pytest.raises(BadInput, match="no health file"):
            read_health(path)
        with pytest.raises(BadInput) as refused:
            read_groups(path, {"a": 1})
        assert refused.value.hint or text.startswith('{"by_server')
    for groups_text in ('{"g": ["a"]}', '{"g": ["a", "z"]}'):
        path.write_text(groups_text)
        with pytest.raises(BadInput, match="'g'"):
            read_groups(path, {"a": 1})
    for read in (read_health, lambda p: from_executed([p]), lambda p: read_groups(p, {})):
        with pytest.raises(NotFound):
            read(tmp_path / "none")
    path.write_text('{"version": 2, "mean": 1}')
    with pytest.raises(BadInput, match="newer"):
        read_health(path)


def test_health_decides_between_near_equals(settings: Settings, tmp_path: Path) -> None:
    with Catalogue(settings.database_url) as catalogue:
        for name in ("aa", "bb"):
            tools = [tool(name, "get_forecast", WEATHER, city=TEXT)]
            catalogue.put_server(Server(server_id=name, name="Weather"), tools)
        catalogue.put_server(Server(server_id="chess", name="Chess"), [TOOLS[-1]])
        build_index(catalogue, settings)
    index = SearchIndex.open(settings.index_dir, settings=settings)
    for good, bad in (("aa", "bb"), ("bb", "aa")):
        known = {good: Health(health=1, calls=9), bad: Health(health=0.5, calls=9), "chess": Health(health=1)}
        write_health(tmp_path / "h.json", known, 0.8)
        priors = index.server_priors(read_health(tmp_path / "h.json").priors())
        found = index.find("weather forecast for Oslo", priors=priors)
        assert found.hits[0].tool_id == f"{good}/get_forecast"
    assert np.all(index.server_priors({"unknown": 1.0}) == 0)
    index.close()
