"""Packages that are named almost like a far more used one: which are flagged, and that none stands above it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import search_pool
from pack_fixture import DATE, Built, build, packed_servers

from toolscout.errors import BadInput, StorageError
from toolscout.index.layers import LayeredIndex, LayerParams
from toolscout.index.pack.file import PackFile, write_pack
from toolscout.index.pack.lookalikes import look_alikes, one_slip
from toolscout.index.pack.search import PackIndex
from toolscout.index.pack.sources import PackSources
from toolscout.records import Install, Server, Tool

USED = {
    "npm:@playwright/mcp": 6_000_000, "npm:mongodb-mcp-server": 160_000, "npm:@notionhq/notion-mcp-server": 240_000,
    "npm:@hono/mcp": 340_000, "npm:nx-mcp": 198_000, "npm:mcp-git": 900_000, "npm:@azure/mcp": 250_000,
    "npm:slack-mcp": 99_000, "npm:rarely-used": 480, "pypi:context-portal": 500_000, "pypi:rarely-used": 500,
}  # fmt: skip


def packaged(key: str, **facts: object) -> Server:
    registry, _, package = key.partition(":")
    return Server(server_id=key.replace(":", "/"), install=Install(registry=registry, package=package), **facts)


@pytest.mark.parametrize(
    ("package", "original"),
    [
        ("npm:playwright-mcp", "npm:@playwright/mcp"),  # without the scope
        ("npm:@other/playwright-mcp", "npm:@playwright/mcp"),
        ("npm:playwright_mcp", "npm:@playwright/mcp"),
        ("npm:@playwrihgt/mcp", "npm:@playwright/mcp"),  # two letters swapped
        ("npm:@other/mongodb-mcp-server", "npm:mongodb-mcp-server"),
        ("npm:mongo-db-mcp-server", "npm:mongodb-mcp-server"),  # a hyphen more
        ("npm:mongoddb-mcp-server", "npm:mongodb-mcp-server"),  # a letter doubled
        ("npm:mongdb-mcp-server", "npm:mongodb-mcp-server"),
        ("npm:m0ngodb-mcp-server", "npm:mongodb-mcp-server"),  # a zero
        ("npm:s1ack-mcp", "npm:slack-mcp"),  # letters that look alike count in short names, too
        ("npm:@notion-hq/notion-mcp-server", "npm:@notionhq/notion-mcp-server"),
        ("pypi:context-porta1", "pypi:context-portal"),
        ("npm:@accesslint/mcp", None),  # its own scope, and a name that is anybody's
        ("npm:@ohno/mcp", None),  # short names are alike by chance
        ("npm:wx-mcp", None),
        ("npm:git-mcp", None),  # the order of words
        ("npm:mcp-server-git", None),
        ("npm:motion-mcp-server", None),
        ("npm:@playwright/mcp-server", None),
        ("npm:@playwright/playwright-mcp", None),  # the same publisher
        ("npm:mongodb-mcp-server", None),
        ("npm:context-portal", None),  # another registry's
        ("npm:rarely-use", None),  # of one that few use
    ],
)
def test_which_packages_look_like_another(package: str, original: str | None) -> None:
    assert look_alikes([packaged(package)], USED) == ({} if original is None else {0: original})


def test_what_is_used_about_as_much_or_is_the_makers_looks_like_none() -> None:
    assert look_alikes([packaged("npm:mongoddb-mcp-server", popularity=3_201.0)], USED) == {}
    assert look_alikes([packaged("npm:mongoddb-mcp-server", popularity=3_200.0)], USED) != {}
    assert look_alikes([packaged("npm:mongoddb-mcp-server", official=True)], USED) == {}
    assert look_alikes([packaged("npm:mongoddb-mcp-server"), packaged("url:x"), Server(server_id="x")], {}) == {}


def test_a_copy_of_a_copy_looks_like_the_original() -> None:
    servers = [packaged("npm:mongod-mcp-server"), packaged("npm:mongoddb-mcp-server"), packaged("npm:mongoddbb-mcp")]
    servers[1] = packaged("npm:mongodbb-mcp-server", popularity=3_000.0)
    servers[2] = packaged("npm:mongodbbb-mcp-server", popularity=1.0)
    assert look_alikes(servers, USED) == dict.fromkeys(range(3), "npm:mongodb-mcp-server")


@pytest.mark.parametrize(
    ("one", "other", "slip"),
    [
        ("abcd", "abcd", False), ("abcd", "abc", True), ("abcd", "bcd", True), ("abcd", "abxd", True),
        ("abcd", "acbd", True), ("abcd", "abdc", True), ("abcd", "badc", False), ("abcd", "ab", False),
        ("abcd", "dbca", False), ("", "a", True), ("ab", "ba", True), ("abc", "cab", False),
    ],
)  # fmt: skip
def test_one_slip_of_the_pen(one: str, other: str, slip: bool) -> None:
    assert one_slip(one, other) is one_slip(other, one) is slip


# --- in a pack -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_copy(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The small pack and a look-alike of its GitHub server, with one tool that the original does not have."""
    github = next(server for server in packed_servers() if server.server_id == "acme/github")
    copy = github.model_copy(
        update={
            "server_id": "aaa/github", "name": "Zap", "title": None, "popularity": 10.0,
            "install": github.install.model_copy(update={"package": "@aaa/github-mcp"}),
        }
    )  # fmt: skip
    tools = [
        t.model_copy(update={"server_id": "aaa/github"}) for t in search_pool.tools() if t.server_id == "acme/github"
    ]
    tools = [t.model_copy(update={"tool_id": f"aaa/github/{t.name}"}) for t in tools]
    tools.append(
        Tool(
            tool_id="aaa/github/bake_sourdough_bread", server_id="aaa/github", name="bake_sourdough_bread",
            description="Bake a loaf of sourdough bread.",
        )
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("copy")
    return build(folder, [*packed_servers(), copy], [*search_pool.tools(), *tools], PackSources())


def opened(built: Built) -> PackIndex:
    return PackIndex.open_pack(built.path, built.encoder)


def test_a_build_flags_a_look_alike(with_copy: Built) -> None:
    copy, original = (opened(with_copy).get_server(i) for i in ("aaa/github", "acme/github"))
    assert copy is not None and copy.looks_like == "npm:@acme/github-mcp"
    assert original is not None and original.looks_like is None


@pytest.mark.parametrize("query", ["bake sourdough bread", "create an issue in a GitHub repository", "aaa/github"])
def test_a_look_alike_never_stands_above_the_original_in_a_search(with_copy: Built, query: str) -> None:
    servers = [hit.server_id for hit in opened(with_copy).find(query, limit=20, dynamic=False, abstain=False).hits]
    assert "aaa/github" in servers and servers.index("acme/github") < servers.index("aaa/github")


def test_a_look_alike_of_what_is_installed_is_hidden(with_copy: Built) -> None:
    for installed, hidden in (("npm:@acme/github-mcp", True), ("npm:@acme/weather-mcp", False)):
        index = LayeredIndex(None, opened(with_copy), LayerParams(), {installed})
        hits = index.find("bake sourdough bread", limit=20, dynamic=False, abstain=False).hits
        assert ("aaa/github" not in {hit.server_id for hit in hits}) is hidden


def test_a_name_gives_the_original_before_its_look_alike(with_copy: Built) -> None:
    index = opened(with_copy)
    for name in ("github", "Zap"):  # the second is the copy's alone
        assert [s.server_id for s in index.servers_called(name)] == ["acme/github", "aaa/github"]
    assert [s.server_id for s in index.servers_called("git hu")] == ["acme/github", "aaa/github"]  # it has it in it
    found = index.server_of("npm:@aaa/github-mcp")
    assert found is not None and found.server_id == "aaa/github" and index.server_of("npm:@aaa/none") is None


def test_a_pack_that_was_built_before_there_were_look_alikes_is_searched(with_copy: Built, tmp_path: Path) -> None:
    pack = PackFile.open(with_copy.path)
    arrays = {name: values for name, values in pack.arrays.items() if name != "server.looks_like"}
    path = tmp_path / f"{DATE}.pack"
    write_pack(path, arrays, pack.manifest)
    hits = PackIndex.open_pack(path, with_copy.encoder).find("bake sourdough bread", dynamic=False, abstain=False).hits
    assert hits[0].server_id == "aaa/github"
    write_pack(path, {**arrays, "server.looks_like": np.zeros(3, np.int32)}, pack.manifest)
    with pytest.raises(StorageError, match="damaged"):
        PackIndex.open_pack(path, with_copy.encoder)


# --- dates -----------------------------------------------------------------------------------------------------------


def test_dates_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dates.tsv").write_text("npm:a\t2025-03-01\t2026-09\nnpm:b\t\t2026-10\nnpm:c\n")
    dates = PackSources.read(tmp_path).dates
    assert dates == {"npm:a": ("2025-03-01", "2026-09"), "npm:b": ("", "2026-10"), "npm:c": ("", "")}
    (tmp_path / "dates.tsv").write_text("npm:a\tsince always\t\n")
    with pytest.raises(BadInput, match="line 1"):
        PackSources.read(tmp_path)
