"""Products that a request names, and those that a server is for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pack_fixture import PRODUCTS, Built

from toolscout.index.pack.search import PackIndex
from toolscout.index.products import Mention, Product, Products, pack_products, read_products
from toolscout.records import Install, Server


def lexicon(products: list[Product], servers: list[Server] | None = None) -> Products:
    servers = servers or []
    arrays = pack_products(products, servers, [s.publisher or "" for s in servers])
    return Products.of({f"product.{name}": values for name, values in arrays.items()})


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Products:
    path = tmp_path_factory.mktemp("lexicon") / "products.tsv"
    path.write_text(PRODUCTS)
    return lexicon(read_products(path))


def said(products: Products, text: str) -> list[str]:
    """Names of what a text names; with a question mark where it may be an ordinary word."""
    return [products.name(m.product) + ("" if m.sure else "?") for m in products.mentioned(text)]


def test_a_lexicon_is_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("GitHub\tgithub.com|GH\tname\nBox\t\tword\nPlain\n\n\tno name\tword\n")
    assert read_products(tmp_path / "p.tsv") == [
        Product("GitHub", ("github.com", "GH")), Product("Box", word=True), Product("Plain"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("open an issue on GitHub", ["GitHub"]),
        ("open an issue on github", ["GitHub"]),
        ("OPEN AN ISSUE ON GITHUB!", ["GitHub"]),
        ("copy it from GitLab to GitHub, then GitLab again", ["GitLab", "GitHub"]),
        ("read a github.com page", ["GitHub"]),
        ("query postgres with psql", ["PostgreSQL"]),
        ("turn on the lights in Home Assistant", ["Home Assistant"]),
        ("turn on the lights in home assistant", ["Home Assistant"]),
        ("turn on the lights in HomeAssistant", ["Home Assistant"]),
        ("a route in Google Maps", ["Google Maps"]),
        ("compile my C++ code", ["C++"]),
        ("GitHub's issues", ["GitHub"]),
        ("issues (GitHub)", ["GitHub"]),
        ("nothing of the kind", []),
        ("", []),
        ("?!", []),
    ],
)
def test_products_are_found_however_they_are_written(products: Products, text: str, names: list[str]) -> None:
    assert said(products, text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("post it in Slack", ["Slack"]),
        ("cut me some slack", ["Slack?"]),
        ("Slack is down", ["Slack?"]),
        ("put it in the box", ["Box?"]),
        ("upload it to Box", ["Box"]),
        ("a notion of Notion", ["Notion"]),
    ],
)
def test_a_name_that_is_a_word_is_sure_only_in_capitals_within_a_sentence(
    products: Products, text: str, names: list[str]
) -> None:
    assert said(products, text) == names


def test_the_longest_name_hides_those_within_it() -> None:
    products = lexicon(
        [Product("Google"), Product("Google Maps"), Product("Maps", word=True), Product("Google Maps Platform")]
    )
    assert said(products, "use Google Maps Platform now") == ["Google Maps Platform"]
    assert said(products, "use Google Maps now") == ["Google Maps"]
    assert said(products, "Google maps") == ["Google Maps"]
    assert said(products, "Google, then Maps") == ["Google", "Maps"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("post it on X", ["X"]),
        ("solve for x", []),
        ("a video on YT", ["YouTube"]),
        ("yt is short", []),
        ("an ax and an X-ray", ["X"]),
    ],
)
def test_a_short_name_counts_in_capitals_alone(products: Products, text: str, names: list[str]) -> None:
    assert [name.rstrip("?") for name in said(products, text)] == names


@pytest.mark.parametrize(
    "text",
    [
        "fetch https://github.com/acme/slack",
        "fetch http://www.gitlab.com/x and read it",
        "go to www.spotify.example/track",
        "HTTPS://GITHUB.COM/x",
    ],
)
def test_an_address_names_no_product(products: Products, text: str) -> None:
    assert said(products, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "is it in for me",  # Infor
        "we are at home. Assistant, help me",
        "leave home, assistant",
        "look on google; maps are fine",
        "drive\nsalesforces",
        "visual studio: code it",
        "gith ub", "git hub", "not ion", "githubs", "xbox", "boxes", "unspotify",
    ],
)  # fmt: skip
def test_words_that_only_stand_side_by_side_name_no_product(products: Products, text: str) -> None:
    assert said(products, text) == []


def test_a_very_long_text_is_read_from_its_beginning(products: Products) -> None:
    assert said(products, "GitHub " + "word " * 10_000 + "Spotify") == ["GitHub"]


def test_an_empty_lexicon_finds_nothing() -> None:
    empty = lexicon([])
    assert (
        len(empty) == 0 and empty.mentioned("GitHub") == [] and empty.of_server(Server(server_id="x/github")) == set()
    )


def test_of_equal_names_the_first_product_counts() -> None:
    products = lexicon([Product("Notion", word=True), Product("Notion")])
    assert products.mentioned("notion") == [Mention(0, sure=False)]


# --- servers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({"server_id": "acme/github"}, {"GitHub"}),
        ({"server_id": "npm/@acme/github-mcp-server"}, {"GitHub"}),
        ({"server_id": "npm/x", "name": "GitHub MCP Server"}, {"GitHub"}),
        ({"server_id": "npm/x", "title": "GitHub"}, {"GitHub"}),
        ({"server_id": "npm/x", "install": Install(package="mcp-gitlab")}, {"GitLab"}),
        ({"server_id": "npm/home-assistant-mcp"}, {"Home Assistant"}),
        ({"server_id": "npm/google_maps"}, {"Google Maps"}),
        ({"server_id": "npm/mcp-server-slack"}, {"Slack"}),
        ({"server_id": "npm/slack-post"}, {"Slack"}),
        ({"server_id": "npm/idea-box-for-teams"}, set()),
        ({"server_id": "npm/cut-me-some-slack"}, set()),
        ({"server_id": "npm/x-ray"}, set()),
        ({"server_id": "npm/x"}, set()),
        ({"server_id": "npm/mcp-server"}, set()),
        ({"server_id": "npm/sync-github-to-gitlab"}, {"GitHub", "GitLab"}),
        ({"server_id": "npm/x", "description": "For GitHub and GitLab."}, set()),
    ],
)
def test_a_server_is_for_what_its_names_say(products: Products, facts: dict[str, object], names: set[str]) -> None:
    assert {products.name(n) for n in products.of_server(Server(**facts))} == names


def test_a_publisher_is_a_product_too(products: Products) -> None:
    assert {products.name(n) for n in products.of_server(Server(server_id="npm/mcp"), "Stripe")} == {"Stripe"}
    assert products.of_server(Server(server_id="npm/mcp"), "acme-inc") == set()


def test_the_servers_of_each_product_are_kept() -> None:
    servers = [Server(server_id="a/github"), Server(server_id="b/gitlab"), Server(server_id="c/github-tools")]
    products = lexicon([Product("GitHub"), Product("GitLab"), Product("Asana")], servers)
    assert [products.servers(n).tolist() for n in range(3)] == [[0, 2], [1], []]
    assert np.asarray(products.servers(2)).dtype == np.int32


def test_a_pack_knows_its_products_and_their_servers(built_pack: Built) -> None:
    storage = PackIndex.open_pack(built_pack.path, built_pack.encoder).storage

    def servers(text: str) -> set[str]:
        (mention,) = storage.products.mentioned(text)
        return {storage.server(int(row)).server_id for row in storage.products.servers(mention.product)}

    assert servers("on GitHub") == {"acme/github"}
    assert servers("in Notion") == {"vendor/notion"} and servers("in Stripe") == {"vendor/stripe"}
    assert servers("in Slack") == {"acme/slack"} and servers("in Salesforce") == set()


def test_a_pack_tells_words_that_nothing_in_it_has(built_pack: Built) -> None:
    storage = PackIndex.open_pack(built_pack.path, built_pack.encoder).storage
    assert storage.unknown_words("open an issue in GitHub or in Salesforce")[1] == 1, "of Salesforce there is no server"
    assert storage.unknown_words("open an issue in Zorblax")[1] == 1
    assert storage.unknown_words("open an issue in zorblax")[1] == 1, "it stands where a name would"
    assert storage.unknown_words("Zorblaxing here")[1] == 0, "a first word is always capitalized"
    assert storage.unknown_words("zorblax/quibble_x.md")[0] == 0, "parts of paths are no words"
    assert storage.unknown_words("which one with what") == (0, 0), "and stop words are known"
    assert storage.unknown_words("") == (0, 0)
    assert storage.strange_names("open an issue in Zorblax") == ["Zorblax"]
    assert storage.strange_names("an issue for Zorblax of the Quibblers") == [], "people and places stand there, too"
