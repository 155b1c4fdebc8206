"""What ``eval retrieval`` measures on request: refusal, lengths, copies, structured requests, ablation,
misses, languages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from toolscout.errors import BadInput
from toolscout.eval.cli import app
from toolscout.eval.language import guess_language
from toolscout.eval.metrics import Judged, wilson
from toolscout.eval.retrieval.ablation import check_exemplars, measure_ablation, measure_exemplars, weight_variants
from toolscout.eval.retrieval.copies import are_copies, with_copies
from toolscout.eval.retrieval.extras import Extras, prepare
from toolscout.eval.retrieval.lengths import Lengths, length_report
from toolscout.eval.retrieval.misses import misses_markdown
from toolscout.eval.retrieval.refusal import best_within, calibration, curve, point_at, refusal_report
from toolscout.eval.retrieval.structured import StructuredRow, messages, read_structured, write_structured
from toolscout.eval.rows import read_calls
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.index.search import SearchIndex
from toolscout.index.transfer import import_files
from toolscout.records import Call, GoldCall, Tool
from toolscout.server.backends import Generation
from toolscout.settings import Settings

DATA = Path(__file__).parent / "data" / "eval"
CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


# --- refusal ---------------------------------------------------------------------------------------------------------


def test_points_of_the_curve_by_hand() -> None:
    right, wrong = [0.2, 0.6, 0.8, 0.9], [0.1, 0.5, 0.7]
    assert point_at(right, wrong, 0.6) == {"threshold": 0.6, "wrong_refusals": 0.25, "false_offers": 0.3333}
    # a quarter may be refused: every threshold up to 0.6 refuses one, and 0.6 is the highest
    assert best_within(right, wrong, 0.25)["threshold"] == 0.6
    assert best_within(right, wrong, 0.24) == {"threshold": 0.2, "wrong_refusals": 0.0, "false_offers": 0.6667}
    assert best_within(right, wrong, 1.0)["false_offers"] == 0.0
    points = [(p["wrong_refusals"], p["false_offers"]) for p in curve(right, wrong)]
    assert points == [
        (0.0, 1.0), (0.0, 0.6667), (0.25, 0.6667), (0.25, 0.3333), (0.5, 0.3333), (0.5, 0.0), (0.75, 0.0), (1.0, 0.0),
    ]  # fmt: skip


@given(CHANCES, CHANCES, st.sampled_from([0.0, 0.01, 0.03, 0.05, 0.5]))
def test_no_threshold_within_the_budget_offers_less(right: list[float], wrong: list[float], budget: float) -> None:
    right, wrong = sorted(right), sorted(wrong)
    best = best_within(right, wrong, budget)
    assert best["wrong_refusals"] <= budget + 1e-4
    within = [
        point for t in {*right, *wrong, 0.0, 2.0} if (point := point_at(right, wrong, t))["wrong_refusals"] <= budget
    ]
    # above the highest probability of all nothing is offered, and that refuses everything: it cannot be within
    assert best["false_offers"] <= min(point["false_offers"] for point in within) + 1e-9


@given(CHANCES, CHANCES)
def test_the_curve_goes_from_offering_all_to_refusing_all(right: list[float], wrong: list[float]) -> None:
    points = curve(sorted(right), sorted(wrong))
    assert (points[0]["false_offers"], points[-1]["wrong_refusals"], points[-1]["false_offers"]) == (1.0, 1.0, 0.0)
    for before, after in itertools.pairwise(points):
        assert before["wrong_refusals"] <= after["wrong_refusals"]
        assert before["false_offers"] >= after["false_offers"]


def test_calibration_by_hand() -> None:
    found = calibration([0.95, 0.85, 0.85, 0.15], [True, True, False], 1)
    # bins: one of .95 that came true, two of .85 half true, one of .15 that did not
    assert found["ece"] == pytest.approx((0.05 + 2 * 0.35 + 0.15) / 4, abs=1e-4)
    assert found["base_rate"] == 0.5
    assert found["brier"] == pytest.approx((0.05**2 + 0.15**2 + 0.85**2 + 0.15**2) / 4, abs=1e-4)
    assert [(b["from"], b["n"], b["share"]) for b in found["bins"] if b["n"]] == [
        (0.1, 1, 0.0),
        (0.8, 2, 0.5),
        (0.9, 1, 1.0),
    ]
    assert calibration([1.0], [True], 0)["ece"] == 0.0


def test_intervals_are_wilsons() -> None:
    assert wilson(0, 100) == [0.0, pytest.approx(0.037, abs=1e-3)]
    assert wilson(50, 100) == [pytest.approx(0.4038, abs=1e-3), pytest.approx(0.5962, abs=1e-3)]


def test_refusal_needs_rows_of_both_kinds() -> None:
    assert refusal_report([0.5], [], 0.4) is None
    report = refusal_report([0.9, 0.2], [0.1], 0.4, [True, False])
    assert report is not None
    assert report["default"]["wrong_refusals"] == 0.5
    assert set(report["at_wrong_refusals"]) == {"0.01", "0.02", "0.03", "0.05"}
    assert report["calibration"]["served"]["base_rate"] == pytest.approx(1 / 3, abs=1e-4)


# --- lengths ---------------------------------------------------------------------------------------------------------


def lengths(ranked: str, gold: str, dynamic: int, *, refused: bool = False) -> Lengths:
    return Lengths(Judged(list(ranked), frozenset(gold), frozenset(gold)), dynamic, 100 * dynamic, 500, refused)


def test_fixed_and_dynamic_length_by_hand() -> None:
    report = length_report(
        [lengths("abcdefgh", "a", 1), lengths("abcdefgh", "c", 2), lengths("abcdefgh", "g", 8, refused=True)]
    )
    assert report is not None
    assert report["lengths"] == {"1": 1, "2": 1, "8": 1}
    assert (report["fixed"]["equivalent"], report["fixed"]["tokens"]) == (0.6667, 500.0)
    assert (report["dynamic"]["equivalent"], report["dynamic"]["tools"]) == (0.6667, 3.67)
    assert (report["gained"], report["lost"]) == (1, 1)
    # the mean length is 11/3: a third of @3 (2 of 3) and two thirds of @4 (2 of 3)
    assert report["same_length"] == {"k": 3.67, "equivalent": 0.6667}
    assert report["as_given"] == {"equivalent": 0.3333, "refused": 1}
    assert length_report([]) is None


# --- copies ----------------------------------------------------------------------------------------------------------


def tool(tool_id: str, description: str = "Get details of an index", *names: str) -> Tool:
    server, _, name = tool_id.rpartition("/")
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in names}}
    return Tool(tool_id=tool_id, server_id=server, name=name, description=description, input_schema=schema)


@pytest.mark.parametrize(
    ("one", "other", "copies"),
    [
        (tool("a/get_index"), tool("b/get_index"), True),
        (tool("a/redis_get_index"), tool("b/get_index"), True),
        (tool("a/redis-mcp_getIndex"), tool("b/get_index"), True),
        (tool("a/get_index"), tool("b/get_index", "get  details of an INDEX "), True),
        (tool("a/browser_fill"), tool("b/puppeteer_fill"), False),
        (tool("a/get_index"), tool("b/budget_index"), False),
        (tool("a/get_index"), tool("b/get_index", "Get details of a file"), False),
        (tool("a/get_index", "Get it", "name"), tool("b/get_index", "Get it", "id"), False),
        (tool("a/get_index", ""), tool("b/get_index", ""), False),
        (tool("a/a_run"), tool("b/run"), False),
    ],
)
def test_what_a_copy_is(one: Tool, other: Tool, copies: bool) -> None:
    assert are_copies(one, other) is are_copies(other, one) is copies


def test_copies_become_relevant_and_gold_stays() -> None:
    pool = {t.tool_id: t for t in (tool("a/get_index"), tool("b/x_get_index"), tool("c/other", "Another one"))}
    calls = [
        Call(id="1", query="q", gold=[GoldCall(tool_id="a/get_index")]),
        Call(id="2", query="q", gold=[GoldCall(tool_id="c/other")], relevant=["c/other", "not/here"]),
        Call(id="3", query="q"),
    ]
    rows, changed = with_copies(calls, pool)
    assert changed == 1
    assert rows[0].relevant == ["a/get_index", "b/x_get_index"]
    assert [g.tool_id for g in rows[0].gold] == ["a/get_index"]
    assert rows[1:] == calls[1:]


# --- structured requests ---------------------------------------------------------------------------------------------


class Parrot:
    """A model that says what it was told to, and counts."""

    name = "parrot"

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def generate(self, chat: Any, **_: Any) -> Generation:
        self.asked.append(chat[-1]["content"])
        return Generation(self.answers.pop(0))


async def test_structured_requests_are_written_once_and_read_back(tmp_path: Path) -> None:
    calls = [Call(id="1", query="Ring Ada"), Call(id="2", query="Zwei Kilo in Pfund?")]
    out = tmp_path / "more" / "requests.jsonl"
    model = Parrot('{"server": "Telephony", "tool": "place a call"}', "not json")
    assert await write_structured(model, calls, out) == 2  # type: ignore[arg-type]
    assert await write_structured(model, calls, out) == 0  # type: ignore[arg-type]
    assert model.asked == ["Ring Ada", "Zwei Kilo in Pfund?"]
    rows = read_structured(out, calls)
    assert rows["1"].requests == [StructuredRow.Request(server="Telephony", tool="place a call")]
    assert rows["1"].by == "parrot"
    assert rows["2"].requests[0].tool == "Zwei Kilo in Pfund?" and "plain query" in rows["2"].by
    with pytest.raises(BadInput, match=r"1 of 3 rows have no structured form in requests\.jsonl, the first is '3'"):
        read_structured(out, [*calls, Call(id="3", query="q")])


def test_the_prompt_shows_the_request_and_nothing_of_the_answer() -> None:
    row = Call(id="1", query="Ring Ada", gold=[GoldCall(tool_id="phone/dial_number")], relevant=["other/call_up"])
    text = json.dumps(messages(row.query))
    assert "Ring Ada" in text and "dial_number" not in text and "call_up" not in text


# --- over a real index -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchIndex]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TOOLSCOUT_ENCODER", raising=False)
        settings = Settings(home=tmp_path_factory.mktemp("home"), starter=False)
        exemplars = tmp_path_factory.mktemp("exemplars") / "calls.jsonl"
        exemplars.write_text(
            json.dumps(
                {"id": "x", "query": "Heat the kettle water to 90 degrees", "gold": [{"tool_id": "kettle/boil_water"}]}
            ),
            "utf-8",
        )
        with Catalogue(settings.database_url) as catalogue:
            import_files(catalogue, servers=[DATA / "servers.jsonl"], tools=[DATA / "tools.jsonl"], calls=[exemplars])
            build_index(catalogue, settings)
        opened = SearchIndex.open(settings.index_dir, settings=settings)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    return [row for row in read_calls([DATA / "calls.jsonl"]) if row.gold or not row.candidates]


def test_every_signal_is_left_out_and_tried_alone(index: SearchIndex, calls: list[Call]) -> None:
    before = index.params
    result = measure_ablation(index, calls)
    assert index.params is before
    assert result["n"] == 7
    names = {group: [v["name"] for v in result["variants"] if v["group"] == group] for group in ("without", "alone")}
    present = [name for name in before.signals if name not in result["absent"]]
    assert "tool" in present and "exemplar" in present
    assert names["alone"] == [name for name in present if name != "exemplar"], "what is added to a text ranks nothing"
    assert names["without"] == [name for name in present if before.signals[name]]
    whole = result["variants"][0]
    assert (whole["won"], whole["lost"]) == (0, 0)
    assert whole["equivalent"]["recall@5"] >= 0.9
    assert sum(part["n"] for part in whole["by_split"].values()) == 7
    ready = result["ready"]
    assert ready["help"]["any@1"] >= ready["plain"]["any@1"] >= ready["harm"]["any@1"]
    assert result["names"]["with"]["any@1"] == 1.0


def test_weights_of_a_variant_replace_the_searchs(index: SearchIndex) -> None:
    variants = {(v.group, v.name): v.weights for v in weight_variants(index.params, {"tool", "words"})}
    assert variants["whole", ""] == index.params.signals
    assert variants["without", "words"] == {**index.params.signals, "words": 0.0}
    assert sum(variants["alone", "tool"].values()) == variants["alone", "tool"]["tool"] == 1.0
    assert ("alone", "server") not in variants


def test_weights_can_be_fitted_again(index: SearchIndex, calls: list[Call]) -> None:
    result = measure_ablation(index, calls, refit=True)
    refitted = [v["name"] for v in result["variants"] if v["group"] == "refitted"]
    assert refitted[0] == "all" and "without tool" in refitted


def test_exemplars_are_measured_against_the_same_index_without(index: SearchIndex, calls: list[Call]) -> None:
    lines = measure_exemplars(index, calls)
    assert [line["name"] for line in lines] == ["added", "alone"]
    assert {line["group"] for line in lines} == {"exemplars"}
    # the exemplar is of one tool: alone it leaves all others tied
    assert lines[0]["equivalent"]["recall@5"] > lines[1]["equivalent"]["recall@5"]


def test_alone_exemplars_rank_by_their_likeness_to_the_request(index: SearchIndex) -> None:
    asked = [
        Call(id="near", query="Heat the kettle water to 85 degrees", gold=[GoldCall(tool_id="kettle/boil_water")]),
        Call(id="own words", query="boil water", gold=[GoldCall(tool_id="kettle/boil_water")]),  # the text is nearer
    ]
    assert measure_exemplars(index, asked)[1]["equivalent"]["recall@1"] == 1.0


def test_measured_rows_are_refused_as_exemplars() -> None:
    dev = [Call(id="d", query="Wer hat heute Geburtstag?")]
    check_exemplars([Call(id="t", query="Wer hat morgen Geburtstag?")], dev)
    with pytest.raises(BadInput, match="1 exemplars are rows that are measured, the first is 't'"):
        check_exemplars([Call(id="t", query="wer hat HEUTE Geburtstag")], dev)


def test_misses_show_what_was_offered_instead(index: SearchIndex) -> None:
    rows = [
        Call(id="hit", query="Boil half a litre of water", gold=[GoldCall(tool_id="kettle/boil_water")]),
        Call(id="miss", query="Fly to the moon", gold=[GoldCall(tool_id="moon/fly")], split="unseen_tool"),
        Call(id="none", query="Sing to me"),
    ]
    ranked = [[hit.tool_id for hit in index.find(r.query, limit=50, dynamic=False, abstain=False).hits] for r in rows]
    text, count = misses_markdown(index, list(zip(rows, ranked, strict=True)), "Misses", {ranked[1][0]: "mine"})
    assert count == 1
    assert "1 of 2 requests" in text
    assert "## 1. miss" in text and "Fly to the moon" in text and "`moon/fly`, not in the pool" in text
    assert f"1. `{ranked[1][0]}` [mine]" in text and "tool 0." in text
    assert "Boil half" not in text and "Sing to me" not in text


def test_options_that_need_another(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--refit and --exemplars say what --ablation does"):
        prepare(Extras(refit=True), [], [])


@pytest.mark.parametrize(
    ("text", "script", "code"),
    [
        ("What is the weather in Lisbon on Friday?", "latin", "en"),
        ("Wie wird am Freitag das Wetter in Lissabon?", "latin", "de"),
        ("¿Qué tiempo hará el viernes en Lisboa?", None, "es"),
        ("Quel temps fera-t-il vendredi à Lisbonne ?", "latin", "fr"),
        ("restart nginx_proxy-2", "latin", "en"),
        ("明日の天気は？", "ja", "ja"),
    ],
)
def test_languages_are_guessed_within_latin_script_only(text: str, script: str | None, code: str) -> None:
    assert guess_language(text, script) == code


def test_everything_in_one_run(tmp_path: Path) -> None:
    rows = read_calls([DATA / "calls.jsonl"])
    requests = tmp_path / "requests.jsonl"
    requests.write_text(
        "".join(json.dumps({"id": r.id, "requests": [{"tool": r.query}], "by": "test"}) + "\n" for r in rows), "utf-8"
    )
    exemplars = tmp_path / "exemplars.jsonl"
    exemplars.write_text(json.dumps({"id": "x", "query": "tea!", "gold": [{"tool_id": "kettle/boil_water"}]}), "utf-8")
    arguments = ["retrieval", "--tools", str(DATA / "tools.jsonl"), "--servers", str(DATA / "servers.jsonl")]
    arguments += ["--calls", str(DATA / "calls.jsonl"), "--json", str(tmp_path / "out.json"), "--details"]
    arguments += ["--report", str(tmp_path / "report"), "--misses", str(tmp_path / "misses.md"), "--copies"]
    arguments += ["--languages", "--requests", str(requests), "--ablation", "--exemplars", str(exemplars)]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert {"refusal", "dynamic_k", "by_language", "structured", "ablation"} <= set(result)
    by_split = result["refusal"]["by_split"]
    assert (
        sum(part["n"] for part in by_split.values())
        == result["refusal"]["answerable"] + result["refusal"]["unanswerable"]
    )
    # a structured request without a server is the plain query
    assert result["structured"]["forms"]["structured"]["strict"] == result["structured"]["forms"]["plain"]["strict"]
    assert result["structured"]["forms"]["plain"]["strict"] == result["strict"]
    assert result["structured"]["forms"]["rewritten"]["strict"] == result["strict"]
    assert result["ablation"]["exemplars"] == 1
    assert [v["name"] for v in result["ablation"]["variants"][-2:]] == ["added", "alone"]
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert page.count("<svg") == 3 and "Calibration of probability" in page and "What each part is worth" in page
    assert (tmp_path / "report" / "refusal.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "report" / "ablation.png").stat().st_size > 5000
    assert (tmp_path / "misses.md").read_text("utf-8") == (tmp_path / "report" / "misses.md").read_text("utf-8")
    assert "1 rows without gold left out" in page
