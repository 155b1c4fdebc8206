"""Building the index: from nothing, bit by bit, again, and with a large pool's index type."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import search_pool
from hypothesis import given
from hypothesis import strategies as st

from toolscout.errors import StorageError
from toolscout.index import build, search, snapshot, storage
from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.index.compressed import CODES_FILE
from toolscout.index.encoder import Kind, OnnxEncoder, Vectors
from toolscout.index.search import SearchIndex
from toolscout.index.snapshot import Arrays, Blobs
from toolscout.index.vectors import VectorStore
from toolscout.records import Review, Server, ServerState, Tool
from toolscout.settings import Settings


class Counting(OnnxEncoder):
    """The shipped encoder, noting what it is asked to encode."""

    def __init__(self) -> None:
        super().__init__(encoders_folder() / DEFAULT_ENCODER)
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        self.seen += texts
        return super().encode(texts, kind=kind)


@pytest.fixture(scope="module")
def encoder() -> Iterator[Counting]:
    with Counting() as found:
        yield found


@pytest.fixture
def catalogue(settings: Settings) -> Iterator[Catalogue]:
    with Catalogue(settings.database_url) as found:
        found.merge(search_pool.servers(), search_pool.tools())
        yield found


def contents(settings: Settings) -> dict[str, np.ndarray]:
    """All arrays of the current generation."""
    name = snapshot.current(settings.index_dir)
    assert name
    folder = settings.index_dir / name
    return {f.stem: np.load(f) for f in sorted(folder.glob("*.npy"))}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype, name
        assert np.array_equal(values, other[name]), name


def test_build_and_open(settings: Settings, catalogue: Catalogue, encoder: Counting) -> None:
    seen: list[tuple[str, int, int]] = []
    meta = build_index(catalogue, settings, encoder=encoder, progress=lambda *a: seen.append(a))
    assert meta.tools == len(search_pool.tools())
    assert meta.servers == len(search_pool.servers())
    assert seen[-1][1] == seen[-1][2] > 0
    index = SearchIndex.open(settings.index_dir, encoder)
    assert len(index) == meta.tools
    assert index.revision == catalogue.revision
    assert index.generation == snapshot.current(settings.index_dir)
    for tool in search_pool.tools():
        found = index.get_tool(tool.tool_id)
        assert found is not None
        assert found.input_schema == tool.input_schema
    server = index.get_server("acme/slack")
    assert server is not None
    assert server.description.startswith("Team chat")
    assert index.get_tool("acme/slack/nothing") is None
    assert index.get_server("nothing") is None


def test_nothing_new_writes_nothing(settings: Settings, catalogue: Catalogue, encoder: Counting) -> None:
    first = build_index(catalogue, settings, encoder=encoder)
    encoder.seen.clear()
    assert build_index(catalogue, settings, encoder=encoder) == first
    assert encoder.seen == []


def test_changes_bit_by_bit_end_as_a_build_from_nothing(
    settings: Settings, catalogue: Catalogue, encoder: Counting, tmp_path: Path
) -> None:
    build_index(catalogue, settings, encoder=encoder)
    catalogue.put_exemplars(search_pool.exemplars())
    build_index(catalogue, settings, encoder=encoder)
    catalogue.remove_server("acme/pdf")
    build_index(catalogue, settings, encoder=encoder)
    changed = Tool(
        tool_id="acme/slack/post_message", server_id="acme/slack", name="post_message", description="Write in a room."
    )
    catalogue.merge(tools=[changed], accept_changes=True)
    catalogue.set_review(["demo/git/git_log"], Review.BLOCKED)
    catalogue.set_state("acme/weather", ServerState.UNAVAILABLE)
    new = Server(server_id="aaa/first", name="First", description="Sorts before all others")
    catalogue.put_server(new, [Tool(tool_id="aaa/first/go", server_id="aaa/first", name="go", description="Go on.")])
    catalogue.merge(servers=[Server(server_id="acme/github", name="GitHub", description="Another description")])
    encoder.seen.clear()
    meta = build_index(catalogue, settings, encoder=encoder)
    assert len(encoder.seen) == meta.embedded
    assert len(encoder.seen) <= 4, "only the new and changed tools and servers are encoded"
    other = settings.model_copy(update={"home": tmp_path / "other", "database": settings.database_url})
    encoder.seen.clear()
    build_index(catalogue, other, encoder=encoder)
    assert encoder.seen == [], "every vector comes from the catalogue's cache"
    assert_same(contents(settings), contents(other))
    index = SearchIndex.open(settings.index_dir, encoder)
    assert index.get_tool("demo/git/git_log") is None
    assert index.get_tool("acme/pdf/merge_pdfs") is None
    found = index.get_tool("acme/slack/post_message")
    assert found is not None
    assert found.description == "Write in a room."
    server = index.get_server("acme/weather")
    assert server is not None
    assert server.state == ServerState.UNAVAILABLE


def test_only_approved_tools_of_servers_out_of_quarantine(
    settings: Settings, catalogue: Catalogue, encoder: Counting
) -> None:
    catalogue.set_review(["acme/pdf/pdf_to_text"], Review.PENDING)
    catalogue.set_review(["acme/pdf/merge_pdfs"], Review.CHANGED)
    catalogue.set_state("acme/spotify", ServerState.QUARANTINED)
    build_index(catalogue, settings, encoder=encoder)
    index = SearchIndex.open(settings.index_dir, encoder)
    assert index.get_tool("acme/pdf/pdf_to_text") is None
    assert index.get_tool("acme/pdf/merge_pdfs") is None
    assert index.get_tool("acme/spotify/play_track") is None
    assert b"Start playing" not in index.storage.arrays["tool.records.data"].tobytes()


def test_same_description_is_encoded_once(settings: Settings, encoder: Counting) -> None:
    with Catalogue(settings.database_url) as catalogue:
        for copy in ("a", "b", "c"):
            server = Server(server_id=f"{copy}/same", name="Same", description="The same server")
            tool = Tool(tool_id=f"{copy}/same/run", server_id=server.server_id, name="run", description="Run it.")
            catalogue.put_server(server, [tool])
        encoder.seen.clear()
        meta = build_index(catalogue, settings, encoder=encoder)
    assert meta.tools == 3
    assert len(encoder.seen) == meta.embedded == 2


def test_empty_catalogue(settings: Settings, encoder: Counting) -> None:
    with Catalogue(settings.database_url) as catalogue:
        build_index(catalogue, settings, encoder=encoder)
        index = SearchIndex.open(settings.index_dir, encoder)
        assert len(index) == 0
        answer = index.find("anything at all")
        assert answer.no_match
        assert answer.hits == answer.nearest == []
        assert index.similar_tool_ids("a/b") == []
        catalogue.merge(search_pool.servers(), search_pool.tools())
        build_index(catalogue, settings, encoder=encoder)
    assert len(SearchIndex.open(settings.index_dir, encoder)) == len(search_pool.tools())


def test_open_reader_outlives_later_generations(settings: Settings, catalogue: Catalogue, encoder: Counting) -> None:
    build_index(catalogue, settings, encoder=encoder)
    old = SearchIndex.open(settings.index_dir, encoder)
    for server_id in ("acme/pdf", "acme/slack", "acme/github"):
        catalogue.remove_server(server_id)
        build_index(catalogue, settings, encoder=encoder)
    assert len(snapshot.generations(settings.index_dir)) == 2
    assert not (settings.index_dir / old.generation).exists()
    assert "acme/pdf/merge_pdfs" in [h.tool_id for h in old.find("join two pdf files").hits]
    assert old.find("join two pdf files").hits[0].tool.name == "merge_pdfs"
    assert old.get_tool("acme/slack/list_channels") is not None
    assert old.find("post a message in a channel", exemplars=2).hits


def test_readers_find_a_whole_index_while_it_is_rebuilt(
    settings: Settings, catalogue: Catalogue, encoder: Counting
) -> None:
    build_index(catalogue, settings, encoder=encoder)
    stop = threading.Event()
    failures: list[BaseException] = []
    opened = 0

    def read() -> None:
        nonlocal opened
        while not stop.is_set():
            try:
                index = SearchIndex.open(settings.index_dir, encoder)
                assert index.find("what time is it in Tokyo").hits
                opened += 1
            except BaseException as error:
                failures.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(12):
        catalogue.set_state("acme/weather", ServerState.READY if i % 2 else ServerState.UNAVAILABLE)
        build_index(catalogue, settings, encoder=encoder)
    stop.set()
    reader.join()
    assert failures == []
    assert opened > 0


@pytest.mark.parametrize("damage", ["truncate", "remove", "meta", "pointer"])
def test_damage_is_an_error_and_a_build_repairs_it(
    settings: Settings, catalogue: Catalogue, encoder: Counting, damage: str
) -> None:
    meta = build_index(catalogue, settings, encoder=encoder)
    folder = settings.index_dir / meta.generation
    if damage == "truncate":
        data = (folder / "tool.codes.npy").read_bytes()
        (folder / "tool.codes.npy").write_bytes(data[:-7])
    elif damage == "remove":
        (folder / "inverted.rows.npy").unlink()
    elif damage == "meta":
        (folder / snapshot.META).write_text("{", "utf-8")
    else:
        (settings.index_dir / snapshot.CURRENT).write_text("../elsewhere\n", "utf-8")
    with pytest.raises(StorageError) as caught:
        SearchIndex.open(settings.index_dir, encoder)
    assert caught.value.hint
    build_index(catalogue, settings, encoder=encoder)
    assert SearchIndex.open(settings.index_dir, encoder).find("merge pdf files").hits


def test_another_encoder_needs_a_new_index(settings: Settings, catalogue: Catalogue, encoder: Counting) -> None:
    build_index(catalogue, settings, encoder=encoder)

    class Other(Counting):
        @property
        def fingerprint(self) -> str:
            return "other"

    with Other() as other:
        with pytest.raises(StorageError, match="another encoder"):
            SearchIndex.open(settings.index_dir, other)
        meta = build_index(catalogue, settings, encoder=other)
        assert meta.embedded > len(search_pool.tools())
        assert SearchIndex.open(settings.index_dir, other).find("merge pdf files").hits


def test_no_index(settings: Settings) -> None:
    with pytest.raises(StorageError, match="no search index"):
        SearchIndex.open(settings.index_dir, settings=settings)


@given(st.lists(st.text(max_size=6), max_size=8), st.data())
def test_spliced_blobs(texts: list[str], data: st.DataObject) -> None:
    old = Blobs.of(texts)
    rows = data.draw(st.lists(st.integers(-1, len(texts) - 1), max_size=12))
    new = [f"new {i}" for i in range(rows.count(-1))]
    spliced = Blobs.splice(old, Blobs.of(new), np.array(rows, dtype=np.int64))
    fresh = iter(new)
    assert [spliced.text(i) for i in range(len(rows))] == [next(fresh) if r < 0 else texts[r] for r in rows]


def test_int8_rows_keep_cosines() -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((1500, 96)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    store = VectorStore.of(rows)
    query = rows[7]
    assert np.abs(store.scores(query) - rows @ query).max() < 0.01
    some = np.array([5, 1400, 7])
    assert np.allclose(store.scores(query, some), store.scores(query)[some], atol=1e-6)
    assert VectorStore.of(np.zeros((0, 96), np.float32)).scores(query).shape == (0,)


def test_pool_beyond_the_flat_limit_answers_alike(
    settings: Settings, catalogue: Catalogue, encoder: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(catalogue, settings, encoder=encoder)
    flat = SearchIndex.open(settings.index_dir, encoder)
    queries = ["join two pdf files", "weather in Oslo", "open an issue", "git_create_branch", "天气预报"]
    expected = [[h.tool_id for h in flat.find(q, dynamic=False).hits[:3]] for q in queries]
    monkeypatch.setattr(build, "FLAT_LIMIT", 10)
    monkeypatch.setattr(storage, "FLAT_LIMIT", 10)
    monkeypatch.setattr(search, "CANDIDATES", 12)
    catalogue.set_state("acme/pdf", ServerState.UNAVAILABLE)
    meta = build_index(catalogue, settings, encoder=encoder)
    assert (settings.index_dir / meta.generation / CODES_FILE).is_file()
    large = SearchIndex.open(settings.index_dir, encoder)
    assert [[h.tool_id for h in large.find(q, dynamic=False).hits[:3]] for q in queries] == expected
    catalogue.remove_server("acme/pdf")
    meta = build_index(catalogue, settings, encoder=encoder)
    updated = SearchIndex.open(settings.index_dir, encoder)
    assert "acme/pdf/merge_pdfs" not in [h.tool_id for h in updated.find("join two pdf files", abstain=False).hits]
    assert [h.tool_id for h in updated.find("weather in Oslo", dynamic=False).hits[:3]] == expected[1]


def test_arrays_are_mapped_not_read(settings: Settings, catalogue: Catalogue, encoder: Counting) -> None:
    meta = build_index(catalogue, settings, encoder=encoder)
    array = Arrays(settings.index_dir / meta.generation)["tool.codes"]
    base = array
    while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
