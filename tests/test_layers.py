"""One search over two layers: a person's own servers before their twins in the pack, the pack where nothing serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import search_pool
from pack_fixture import Built

from toolscout.errors import BadInput, StorageError
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.index.encoder import make_encoder
from toolscout.index.encoder_params import write_encoder_params
from toolscout.index.layers import LayeredIndex, LayerParams, layer_params
from toolscout.index.pack.search import PackIndex
from toolscout.index.search import Answer, Filters, SearchIndex, ToolRequest
from toolscout.records import Server, Tool
from toolscout.server.contract import FIND_INPUT
from toolscout.settings import Settings

OWN = {"acme/github": "my-github", "acme/weather": "my-weather", "demo/time": "my-time", "acme/pdf": "my-pdf"}
"""Servers of the pool that are installed, under names of their own."""

RAIN = "weather forecast for Oslo for the next ten days"


def own_records() -> tuple[list[Server], list[Tool]]:
    servers = [
        s.model_copy(update={"server_id": OWN[s.server_id]}) for s in search_pool.servers() if s.server_id in OWN
    ]
    tools = [
        t.model_copy(update={"server_id": OWN[t.server_id], "tool_id": f"{OWN[t.server_id]}/{t.name}"})
        for t in search_pool.tools()
        if t.server_id in OWN
    ]
    return servers, tools


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = Settings(home=tmp_path_factory.mktemp("layers"), starter=False, pack="off")
    with Catalogue(settings.database_url) as catalogue:
        catalogue.merge(*own_records())
        build_index(catalogue, settings)
    return settings


@pytest.fixture(scope="module")
def own(home: Settings, built_pack: Built) -> SearchIndex:
    return SearchIndex.open(home.index_dir, built_pack.encoder)


@pytest.fixture(scope="module")
def box(built_pack: Built) -> PackIndex:
    return PackIndex.open_pack(built_pack.path, built_pack.encoder)


@pytest.fixture(scope="module")
def both(own: SearchIndex, box: PackIndex) -> Iterator[LayeredIndex]:
    yield LayeredIndex(own, box, layer_params(box.encoder))


@pytest.fixture(scope="module")
def alone(box: PackIndex) -> LayeredIndex:
    """The pack on an empty home."""
    return LayeredIndex(None, box, layer_params(box.encoder))


def ids(answer: Answer) -> list[str]:
    return [hit.tool_id for hit in answer.hits]


def servers(answer: Answer) -> list[str]:
    return [hit.server_id for hit in answer.hits]


# --- who leads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "mine"),
    [
        (RAIN, "my-weather/get_forecast"),
        ("open a new issue in the GitHub repository", "my-github/create_issue"),
        ("convert 9:30 in London to New York time", "my-time/convert_time"),
        ("extract the text of a PDF file", "my-pdf/pdf_to_text"),
        ("merge_pdfs", "my-pdf/merge_pdfs"),
    ],
)
def test_an_installed_tool_stands_before_its_twin_in_the_pack(both: LayeredIndex, query: str, mine: str) -> None:
    found = ids(both.find(query, dynamic=False))
    assert found[0] == mine
    twin = {value: key for key, value in OWN.items()}[mine.rpartition("/")[0]] + "/" + mine.rpartition("/")[2]
    assert twin not in found or found.index(mine) < found.index(twin)


@pytest.mark.parametrize(
    ("query", "server", "product"),
    [
        ("refund a payment in Stripe", "vendor/stripe", "Stripe"),
        ("create a page in Notion", "vendor/notion", "Notion"),
        ("create an issue in GitLab", "acme/gitlab", "GitLab"),
        ("send a message to a channel in Slack", "acme/slack", "Slack"),
        ("play a song on Spotify", "acme/spotify", "Spotify"),
    ],
)
def test_a_product_that_is_not_installed_leads_with_its_servers(
    both: LayeredIndex, query: str, server: str, product: str
) -> None:
    answer = both.find(query, dynamic=False)
    assert not answer.no_match and servers(answer)[0] == server
    assert answer.absent == product
    first = servers(answer).index(server)
    assert not set(servers(answer)[:first]) & set(OWN.values()), "no tool of another product stands above"


def test_a_product_that_is_installed_is_not_absent(both: LayeredIndex) -> None:
    answer = both.find("open a new issue in the GitHub repository")
    assert answer.absent == "" and answer.hits[0].server_id == "my-github"


def test_a_product_that_nobody_has_is_said(both: LayeredIndex, alone: LayeredIndex) -> None:
    for index in (both, alone):
        answer = index.find("open the lights of the kitchen in Home Assistant")
        assert answer.absent == "Home Assistant"


def test_a_name_that_nobody_knows_speaks_against_the_own_servers(both: LayeredIndex) -> None:
    def leads(query: str) -> float:
        (ask,) = both.box.asks(query, [], 5)
        assert both.own is not None
        return both.judge(ask, both.own.rank(both.own.asked_here(ask), None, 5), both.box.rank(ask, None, 5)).own_leads

    assert leads("create an issue in Zorblax") < 0.5 * leads("create an issue for Zorblax")
    answer = both.find("feed the hamster in Zorblax")
    assert answer.no_match and answer.strange == "Zorblax"


def test_what_only_the_pack_serves_is_offered_from_there(both: LayeredIndex) -> None:
    answer = both.find("convert an amount of money from euros to yen")
    assert servers(answer)[0] == "acme/currency"


def test_what_nobody_serves_is_no_match_with_the_nearest_of_both(both: LayeredIndex) -> None:
    answer = both.find("reset the Salesforce password")
    assert answer.no_match and answer.hits == [] and 0 < len(answer.nearest) <= 3
    forced = both.find("reset the Salesforce password", abstain=False)
    assert forced.hits and not forced.no_match


def test_a_server_known_as_a_whole_comes_once(both: LayeredIndex) -> None:
    found = ids(both.find("refund a payment or create an invoice in Stripe", dynamic=False, limit=10))
    assert found.count("vendor/stripe") == 1
    hit = next(h for h in both.find("refund a payment in Stripe").hits if h.tool_id == "vendor/stripe")
    assert hit.tool.is_server and hit.server.publisher == "Stripe" and hit.server.official


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
def test_no_more_than_the_limit_is_answered_and_nothing_twice(both: LayeredIndex, limit: int) -> None:
    for query in (RAIN, "refund a payment in Stripe"):
        found = ids(both.find(query, limit=limit, dynamic=False))
        assert 0 < len(found) <= limit and len(set(found)) == len(found)


def test_an_answer_is_as_long_as_find_tools_promises(both: LayeredIndex) -> None:
    asked = [ToolRequest(tool=tool) for tool in (RAIN, "refund a payment in Stripe", "play a song on Spotify")]
    for limit in (1, 2, 5):
        assert len(both.find(RAIN, limit=limit).hits) <= 2 * limit
        several = both.find(requests=asked, limit=limit)
        assert len(several.hits) <= 2 * max(limit, len(asked))
        assert {1, 2, 3} - set(several.unserved) == {n for hit in several.hits for n in hit.requests}
    promise = FIND_INPUT["properties"]["limit"]["description"]
    assert "twice as many" in promise and "one at least for each of several requests" in promise


@pytest.mark.parametrize("limit", [0, 51])
def test_a_limit_out_of_range_is_bad_input(both: LayeredIndex, limit: int) -> None:
    with pytest.raises(BadInput):
        both.find(RAIN, limit=limit)
    with pytest.raises(BadInput, match="empty"):
        both.find("  ")


def test_an_odd_request_matches_nothing(both: LayeredIndex) -> None:
    assert both.find("?!").no_match
    both.find("\ud800 " + "x" * 10_000)


# --- copies of what is installed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["npm:@acme/github-mcp", "acme/github"])
def test_the_packs_copy_of_what_is_installed_is_hidden(own: SearchIndex, box: PackIndex, name: str) -> None:
    index = LayeredIndex(own, box, layer_params(box.encoder), {name})
    for query in ("open a new issue in the GitHub repository", "search_code", "merge a pull request on GitHub"):
        assert "acme/github" not in servers(index.find(query, dynamic=False, limit=20, abstain=False))
    assert "acme/gitlab" in servers(index.find("create an issue in GitLab", dynamic=False))


def test_another_servers_package_hides_nothing(own: SearchIndex, box: PackIndex) -> None:
    index = LayeredIndex(own, box, layer_params(box.encoder), {"npm:@acme/other", "pypi:@acme/github-mcp", "None:None"})
    assert index.visible.all()


def test_everything_may_be_installed(box: PackIndex) -> None:
    index = LayeredIndex(None, box, layer_params(box.encoder), box.storage.server_ids())
    assert not index.visible.any()
    answer = index.find(RAIN, abstain=False)
    assert answer.hits == [] and answer.nearest == []


# --- filters ---------------------------------------------------------------------------------------------------------


def test_ready_only_leaves_the_pack_out(both: LayeredIndex, alone: LayeredIndex) -> None:
    ready = Filters(states=frozenset({"ready"}))
    assert set(servers(both.find(RAIN, filters=ready, dynamic=False))) <= set(OWN.values())
    answer = both.find("refund a payment in Stripe", filters=ready, dynamic=False)
    assert set(servers(answer)) <= set(OWN.values())
    assert alone.find(RAIN, filters=ready, abstain=False).hits == []
    among = Filters(among=frozenset({"my-weather"}))
    assert set(servers(both.find(RAIN, filters=among, dynamic=False))) == {"my-weather"}
    assert alone.find(RAIN, filters=among, abstain=False).hits == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"my-weather"}, {"my-weather"}),
        ({"acme/weather"}, {"acme/weather"}),
        ({"my-weather", "acme/gitlab"}, {"my-weather", "acme/gitlab"}),
        ({"vendor/stripe"}, {"vendor/stripe"}),
        ({"gitlab"}, {"acme/gitlab"}),
    ],
)
def test_servers_of_either_layer_can_be_named(both: LayeredIndex, wanted: set[str], found: set[str]) -> None:
    answer = both.find(RAIN, filters=Filters(servers=frozenset(wanted)), dynamic=False, limit=20)
    assert servers(answer) and set(servers(answer)) <= found and not answer.no_match


def test_a_name_that_both_layers_have_means_the_own_server(both: LayeredIndex) -> None:
    answer = both.find(RAIN, filters=Filters(servers=frozenset({"Weather"})), dynamic=False)
    assert set(servers(answer)) == {"my-weather"}


def test_an_unknown_server_is_bad_input(both: LayeredIndex, alone: LayeredIndex) -> None:
    for index in (both, alone):
        for names in ({"nobody"}, {"acme/weather", "nobody"}):
            with pytest.raises(BadInput, match="no server 'nobody'"):
                index.find(RAIN, filters=Filters(servers=frozenset(names)))
    with pytest.raises(BadInput, match="no state"):
        both.find(RAIN, filters=Filters(states=frozenset({"odd"})))


def test_no_servers_are_none(both: LayeredIndex) -> None:
    assert both.find(RAIN, filters=Filters(servers=frozenset()), abstain=False).hits == []


def test_read_only_holds_in_both_layers(both: LayeredIndex, alone: LayeredIndex) -> None:
    for index in (both, alone):
        for query in (RAIN, "run a query against the PostgreSQL database", "refund a payment in Stripe"):
            answer = index.find(query, filters=Filters(read_only=True), dynamic=False, limit=20, abstain=False)
            assert answer.hits and all(hit.tool.read_only for hit in answer.hits)


def test_tools_can_be_left_out_of_either_layer(both: LayeredIndex) -> None:
    without = frozenset({"my-weather/get_forecast", "acme/weather/get_forecast", "gone/tool"})
    found = ids(both.find(RAIN, filters=Filters(without=without), dynamic=False, limit=20, abstain=False))
    assert found and not without & set(found)


@pytest.mark.parametrize(
    ("query", "maker"),
    [
        ("create a Jira issue", "vendor/atlassian"),
        ("list open Jira bugs in project ABC", "vendor/atlassian"),
        ("post a message to the general channel on Slack", "vendor/slack"),
        ("send an email with Gmail", "vendor/gmail"),
    ],
)
def test_the_makers_own_server_is_offered_where_its_product_is_named(with_pack: Path, query: str, maker: str) -> None:
    encoder = make_encoder(Settings())
    box = PackIndex.open_pack(with_pack, encoder)
    found = servers(LayeredIndex(None, box, layer_params(encoder)).find(query))
    assert found.count(maker) == 1 and len(found) <= 10


# --- several requests ------------------------------------------------------------------------------------------------


def test_several_requests_may_be_served_by_different_layers(both: LayeredIndex) -> None:
    asked = [ToolRequest("weather", "forecast for a city"), ToolRequest("Stripe", "refund a payment"),
             ToolRequest(tool="join several PDF files into one")]  # fmt: skip
    answer = both.find(requests=asked, limit=6)
    by_request = {n: [h.server_id for h in answer.hits if n in h.requests] for n in (1, 2, 3)}
    assert by_request[1][0] == "my-weather" and by_request[2][0] == "vendor/stripe" and by_request[3][0] == "my-pdf"
    assert answer.unserved == [] and len(set(ids(answer))) == len(answer.hits)


def test_a_request_that_nothing_serves_is_said(both: LayeredIndex) -> None:
    asked = [ToolRequest("weather", "forecast for a city"), ToolRequest("Salesforce", "reset a password")]
    assert both.find(requests=asked).unserved == [2]


def test_a_query_beside_requests_is_number_0(both: LayeredIndex) -> None:
    answer = both.find(RAIN, requests=[ToolRequest("weather", "forecast for a city")])
    assert {n for hit in answer.hits for n in hit.requests} == {0, 1}
    assert ids(answer).count("my-weather/get_forecast") == 1


# --- without own servers, exemplars, lookups -------------------------------------------------------------------------


def test_a_home_without_servers_finds_in_the_pack(alone: LayeredIndex, box: PackIndex) -> None:
    assert servers(alone.find(RAIN))[0] == "acme/weather"
    assert ids(alone.find("create a page in Notion"))[0] == "vendor/notion"
    assert alone.revision == 0 and alone.largest_servers(3) == [] and len(alone) == len(search_pool.tools())
    alone.warm()


def test_worked_calls_of_the_pack_help_and_are_shown(alone: LayeredIndex, both: LayeredIndex) -> None:
    for index in (alone, both):
        answer = index.find("crank up some Queen in the kitchen", exemplars=1, abstain=False)
        assert ids(answer)[0] == "acme/spotify/play_track"
        (call,) = answer.hits[0].exemplars
        assert call.query == "crank up some Abba in the living room"
        assert call.gold[0].arguments == {"track": "Waterloo"}
        assert [c.query for c in index.exemplars_near("let them know lunch is served", 1)] == [
            "let the team know lunch is here"
        ]


def test_lookups_go_over_both_layers_own_first(both: LayeredIndex) -> None:
    for tool_id in ("my-github/create_issue", "acme/gitlab/create_issue", "vendor/stripe"):
        found = both.get_tool(tool_id)
        assert found is not None and found.tool_id == tool_id
    for server_id in ("my-github", "acme/gitlab", "vendor/stripe"):
        server = both.get_server(server_id)
        assert server is not None and server.server_id == server_id and both.knows_server(server_id)
    assert both.get_tool("acme/gitlab/nothing") is None and both.get_tool("nothing") is None
    assert both.get_tool("acme/gitlab") is None, "a server whose tools are known is no tool"
    assert both.get_server("nobody") is None and not both.knows_server("nobody")
    asked = ["my-github/create_issue", "acme/gitlab/create_issue", "vendor/notion", "acme/gitlab", "x/y"]
    assert both.known(asked) == set(asked[:3])
    assert len(both) == len(own_records()[1]) + len(search_pool.tools())


def test_ids_that_are_written_alike_are_found_in_both(both: LayeredIndex, alone: LayeredIndex) -> None:
    assert both.similar_tool_ids("my-github/create_isue")[0] == "my-github/create_issue"
    assert alone.similar_tool_ids("acme/gitlab/create_isue")[0] == "acme/gitlab/create_issue"
    assert set(alone.similar_tool_ids("create_issue")) == {"acme/github/create_issue", "acme/gitlab/create_issue"}
    assert set(alone.similar_tool_ids("acme/gitlab")) == {"acme/gitlab/create_issue", "acme/gitlab/list_merge_requests"}
    assert alone.similar_tool_ids("vendor/stripe/refund") == ["vendor/stripe"]
    for index in (both, alone):
        assert index.similar_tool_ids("") == [] and index.similar_tool_ids("/") == []
        index.similar_tool_ids("/" * 1000)


def test_nothing_of_the_pack_is_written_to_the_database(home: Settings, both: LayeredIndex) -> None:
    both.find("refund a payment in Stripe", exemplars=3)
    with Catalogue(home.database_url) as catalogue:
        assert {s.server_id for s in catalogue.servers()} == set(OWN.values())
        assert catalogue.get_tool("acme/gitlab/create_issue") is None


# --- parameters ------------------------------------------------------------------------------------------------------


def test_parameters_are_written_and_read(tmp_path: Path, built_pack: Built) -> None:
    class Elsewhere:
        folder = tmp_path

    assert layer_params(Elsewhere()) == LayerParams(), "unfitted where there are none"  # type: ignore[arg-type]
    params = LayerParams(join={"own": 2.0}, join_bias=-1.0, box={"tool": 3.0}, box_at=0.4, fitted="in a test")
    write_encoder_params(tmp_path / "layers.json", params)
    assert layer_params(Elsewhere()) == params  # type: ignore[arg-type]
    for broken in ("{", "[]", '"x"', "7"):
        (tmp_path / "layers.json").write_text(broken)
        with pytest.raises(StorageError, match=r"layers\.json"):
            layer_params(Elsewhere())  # type: ignore[arg-type]
    assert layer_params(built_pack.encoder).fitted != "not fitted", "those that ship are fitted"


def test_unfitted_parameters_search_too(own: SearchIndex, box: PackIndex) -> None:
    index = LayeredIndex(own, box, LayerParams())
    assert ids(index.find(RAIN))[0] == "my-weather/get_forecast"
