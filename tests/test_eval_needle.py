"""``toolscout eval needle``: the drawing, pools as parts of one index, and the whole command with the real encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from toolscout.errors import BadInput
from toolscout.eval.cli import app
from toolscout.eval.needle.draw import PAPER_SIZES, Draws, limited, needle_rows, parse_sizes
from toolscout.eval.needle.measure import depths, summary
from toolscout.eval.needle.pool import Haystack
from toolscout.eval.rows import read_calls, read_tools
from toolscout.eval.vector_cache import CachingEncoder
from toolscout.eval.work_file import work_file
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.index.encoder import make_encoder
from toolscout.index.search import SearchIndex, ToolRequest
from toolscout.index.transfer import import_files
from toolscout.records import Call, GoldCall, Tool
from toolscout.settings import Settings

SMALL = Path(__file__).parents[1] / "eval" / "data" / "small"
TOOLS, SERVERS = SMALL / "tools.jsonl", SMALL / "servers.jsonl"


def row(row_id: str, *gold: str, relevant: list[str] | None = None) -> Call:
    return Call(id=row_id, query=f"do {row_id}", gold=[GoldCall(tool_id=g) for g in gold], relevant=relevant)


def index_of(tools: list[str], home: Path, cache: Path) -> SearchIndex:
    """An index of these tools alone, as the product builds it; ``cache`` keeps the embeddings."""
    home.mkdir()
    settings = Settings(home=home, database="", starter=False)
    lines = [line for line in TOOLS.read_text("utf-8").splitlines(True) if json.loads(line)["tool_id"] in tools]
    (home / "tools.jsonl").write_text("".join(lines), "utf-8")
    with Catalogue(settings.database_url, guard=False) as catalogue:
        import_files(catalogue, servers=[SERVERS], tools=[home / "tools.jsonl"], calls=[])
        build_index(catalogue, settings, encoder=CachingEncoder(make_encoder(settings), cache))
    return SearchIndex.open(settings.index_dir, settings=settings)


@pytest.fixture(scope="module")
def all_tools() -> dict[str, Tool]:
    return read_tools([TOOLS])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vectors")


@pytest.fixture(scope="module")
def whole(all_tools: dict[str, Tool], cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haystack]:
    index = index_of(list(all_tools), tmp_path_factory.mktemp("whole") / "index", cache)
    yield Haystack(index, list(all_tools))
    index.close()


# --- pools as parts of one index -------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [2, 3])
def test_a_part_is_searched_as_an_index_of_its_own(
    every: int, whole: Haystack, all_tools: dict[str, Tool], cache: Path, tmp_path: Path
) -> None:
    some = sorted(all_tools)[::every]
    alone = index_of(some, tmp_path / "index", cache)
    pool = whole.mask(some)
    ids = whole.id_of
    asked = [(call.query, ToolRequest()) for call in read_calls([SMALL / "calls.jsonl"], 12, 3)]
    asked += [("", ToolRequest("Calendar", "add an event")), ("zzzz qqqq", ToolRequest())]
    for query, request in asked:
        ask = alone.ask(query, request.server, request.tool)
        expected = alone.rank(ask, None, 10)
        found = whole.rank(whole.index.ask(query, request.server, request.tool), pool, 10)
        assert [ids[r] for r in found.rows.tolist()] == [alone.storage.tool_id(r) for r in expected.rows.tolist()]
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
        np.testing.assert_array_equal(found.ask.words.idf, expected.ask.words.idf)
        assert found.probability == pytest.approx(expected.probability, rel=1e-6)
        assert found.shape == pytest.approx(expected.shape, rel=1e-6)
    alone.close()


def test_word_statistics_are_of_the_pool_alone(whole: Haystack, all_tools: dict[str, Tool]) -> None:
    """Without that, a part would be ranked by what is rare outside of it."""
    query = next(call.query for call in read_calls([SMALL / "calls.jsonl"]) if call.gold)
    ask = whole.index.ask(query)
    part = whole.rank(ask, whole.mask(sorted(all_tools)[::3]), 5)
    assert not np.array_equal(part.ask.words.idf, ask.words.idf)
    everything = whole.rank(ask, whole.mask(list(all_tools)), 5)
    np.testing.assert_array_equal(everything.ask.words.idf, ask.words.idf)
    np.testing.assert_array_equal(everything.scores, whole.index.rank(ask, None, 5).scores)


def test_several_requests_share_the_answer_as_find_does(whole: Haystack, all_tools: dict[str, Tool]) -> None:
    requests = [ToolRequest("Calendar", "add an event"), ToolRequest("Weather", "forecast for a city")]
    found = whole.find(whole.asks(None, requests), whole.mask(list(all_tools)), 6)
    answer = whole.index.find(requests=requests, limit=6, dynamic=False, abstain=False)
    assert [whole.id_of[r] for r in found.rows] == [hit.tool_id for hit in answer.hits]
    assert whole.find(whole.asks("?!"), whole.mask(list(all_tools))).rows == []


# --- drawing ---------------------------------------------------------------------------------------------------------


def test_pools_grow_and_hold_no_equal_of_the_needle(all_tools: dict[str, Tool]) -> None:
    ids = sorted(all_tools)
    twin = all_tools[ids[1]].model_copy(update={"tool_id": "copies/twin", "server_id": "copies"})
    draws = Draws({**all_tools, "copies/twin": twin}, seed=5)
    wanted = row("r", ids[0], relevant=[ids[1]])
    assert draws.barred(wanted) == {ids[0], ids[1], "copies/twin"}
    assert draws.room(wanted) == len(ids) + 1 - 3 + 1
    order = draws.order(wanted, "0")
    before: set[str] = set()
    for size in (1, 2, 7, draws.room(wanted)):
        for depth in depths(5):
            drawn = draws.haystack(wanted, ids[0], order, size, depth)
            pool = [draws.tool_ids[place] for place in drawn.tools]
            assert len(pool) == len(set(pool)) == size
            assert pool.index(ids[0]) == drawn.position == round(depth * (size - 1))
            assert not {ids[1], "copies/twin"} & set(pool)
        assert before <= set(pool)
        before = set(pool)
    assert not np.array_equal(order, draws.order(wanted, "1"))


def test_draws_do_not_hang_on_the_order_of_the_files(all_tools: dict[str, Tool]) -> None:
    turned = dict(reversed(all_tools.items()))
    wanted = row("r", sorted(all_tools)[0])
    one, other = Draws(all_tools, 1), Draws(turned, 1)
    np.testing.assert_array_equal(one.order(wanted, "0"), other.order(wanted, "0"))
    assert one.fingerprint == other.fingerprint != Draws(dict(list(all_tools.items())[1:]), 1).fingerprint
    assert not np.array_equal(one.order(wanted, "0"), Draws(all_tools, 2).order(wanted, "0"))


def test_sizes() -> None:
    assert len(PAPER_SIZES) == 26 and PAPER_SIZES[0] == 1 and PAPER_SIZES[-1] == 11100 and 2797 in PAPER_SIZES
    assert parse_sizes("paper", 20_000) == ([*PAPER_SIZES, 20_000], [])
    kept, said = parse_sizes("5, all,3,500", 40)
    assert kept == [3, 5, 40] and "500" in said[0]
    for wrong in ("0", "5,many", "", "-3"):
        with pytest.raises(BadInput, match="--sizes"):
            parse_sizes(wrong, 40)
    with pytest.raises(BadInput, match="every row can have"):
        parse_sizes("500", 40)


def test_rows_that_are_no_needle_are_named(all_tools: dict[str, Tool]) -> None:
    ids = sorted(all_tools)
    rows = [row("one", ids[0]), row("two", *ids[:2]), row("none"), row("gone", "not/here")]
    kept, said = needle_rows(rows, all_tools)
    assert [r.id for r in kept] == ["one"] and len(said) == 2
    with pytest.raises(BadInput, match="exactly one gold tool"):
        needle_rows(rows[1:], all_tools)
    many = [row(f"r{i}", ids[0]) for i in range(20)]
    assert limited(many, 5, 0) == limited(list(reversed(many)), 5, 0)[::-1] and len(limited(many, 5, 0)) == 5


# --- numbers ---------------------------------------------------------------------------------------------------------


def pieces_of(ranks: np.ndarray) -> list[dict[str, Any]]:
    """Pieces as a run writes them, of ranks [rows, sizes, positions]."""
    return [{"rank": r.tolist(), "offered": (r > 0).tolist(), "in_prompt": (r > 2).tolist()} for r in ranks]


def test_shares_against_counting_by_hand() -> None:
    ranks = np.random.default_rng(0).choice([0, 1, 2, 3, 5, 6, 50], (13, 3, 4))
    result = summary(pieces_of(ranks), [1, 10, 100], depths(4))
    for i, line in enumerate(result["by_size"]):
        flat = [int(rank) for rank in ranks[:, i].ravel()]
        assert line["trials"] == 52
        assert line["first"] == pytest.approx(flat.count(1) / 52, abs=1e-4)
        assert line["five"] == pytest.approx(sum(flat.count(k) for k in range(1, 6)) / 52, abs=1e-4)
        assert line["mrr"] == pytest.approx(sum(1 / rank for rank in flat if rank) / 52, abs=1e-4)
        assert line["first_95"][0] <= line["first"] <= line["first_95"][1]
        cells = [cell for cell in result["cells"] if cell["size"] == line["size"]]
        assert sum(cell["first"] for cell in cells) / 4 == pytest.approx(line["first"], abs=1e-4)


def test_shares_against_an_independent_library() -> None:
    ranks = np.random.default_rng(1).choice([0, 1, 2, 4, 5, 6, 9, 50], (40, 1, 1))
    line = summary(pieces_of(ranks), [100], [0.5])["by_size"][0]
    names = [f"q{i}" for i in range(len(ranks))]
    run = {
        name: {("needle" if place == rank else f"d{place}"): 100.0 - place for place in range(1, 51)}
        for name, rank in zip(names, ranks.ravel().tolist(), strict=True)
    }
    theirs = independent({name: {"needle": 1} for name in names}, run)
    assert (line["first"], line["five"], line["mrr"]) == pytest.approx(theirs, abs=1e-4)


def independent(judged: dict[str, dict[str, int]], run: dict[str, dict[str, float]]) -> tuple[float, ...]:
    """Recall@1, recall@5 and MRR (for one relevant document: hit rates) as pytrec_eval computes them."""
    import pytrec_eval

    rows = pytrec_eval.RelevanceEvaluator(judged, {"recall.1,5", "recip_rank"}).evaluate(run).values()
    return tuple(sum(row[name] for row in rows) / len(judged) for name in ("recall_1", "recall_5", "recip_rank"))


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_resumes_and_reports(whole: Haystack, cache: Path, tmp_path: Path) -> None:
    calls, requests = tmp_path / "calls.jsonl", tmp_path / "requests.jsonl"
    rows = [call for call in read_calls([SMALL / "calls.jsonl"]) if len(call.gold) == 1 and call.lang in (None, "en")]
    rows = rows[:4]
    rows[0].query += " <script>alert(1)</script>"
    calls.write_text("".join(call.to_json() + "\n" for call in rows), "utf-8")
    forms = [{"id": r.id, "requests": [{"server": "", "tool": r.query}]} for r in rows]
    requests.write_text("".join(json.dumps(form) + "\n" for form in forms), "utf-8")
    out, report = tmp_path / "out.json", tmp_path / "report"
    arguments = ["needle", "--tools", str(TOOLS), "--servers", str(SERVERS), "--calls", str(calls)]
    arguments += ["--sizes", "1,2,8,all,5000", "--positions", "2", "--context", "900", "--requests", str(requests)]
    arguments += ["--cache", str(cache)]
    arguments += ["--json", str(out), "--report", str(report)]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    result = json.loads(out.read_text("utf-8"))
    assert result["n"] == 4 and result["positions"] == [0.0, 1.0] and "5000" in result["warnings"][0]
    assert set(result["forms"]) == {"plain", "structured"}
    plain = result["forms"]["plain"]["by_size"]
    assert plain[0]["first"] == 1.0 and plain[-1]["five"] >= 0.75
    assert plain[0]["in_prompt"] == 1.0 and plain[-1]["in_prompt"] == 0.5, "only the needle in front fits"
    page = (report / "report.html").read_text("utf-8")
    assert "<script>" not in page and page.count("<svg") == 2
    assert (report / "heat.png").stat().st_size > 5000 and (report / "needle.png").is_file()

    # What a crash left: half of the rows and a torn line. Only the rest is done again, with the same outcome.
    work = out.with_name("out.json.rows.jsonl")
    whole = work.read_text("utf-8").splitlines(True)
    work.write_text("".join(whole[:-1]) + whole[-1][:25], "utf-8")
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0 and "7 of 8 were done before" in again.output
    repeated = json.loads(out.read_text("utf-8"))
    assert repeated["forms"] == result["forms"]

    other = CliRunner().invoke(app, [*arguments, "--seed", "9"])
    assert isinstance(other.exception, BadInput) and "another run" in str(other.exception)


def test_a_work_file_gives_back_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "work.jsonl"
    with work_file(path, {"of": 1}) as work:
        work.add("a", {"x": 1})
        with pytest.raises(BadInput, match="Another run is writing"), work_file(path, {"of": 1}):
            pass
    with work_file(path, {"of": 1}) as work:
        assert "a" in work and work["a"]["x"] == 1 and "b" not in work
    with pytest.raises(BadInput, match="another run"), work_file(path, {"of": 2}):
        pass
