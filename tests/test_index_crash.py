"""A build that is killed with SIGKILL at any moment leaves the index that was there, and the next build completes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import search_pool

from toolscout.index import snapshot
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.index.search import SearchIndex
from toolscout.records import Server, Tool
from toolscout.settings import Settings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="SIGKILL")

BUILDER = """
import os, signal, sys
from pathlib import Path
from toolscout.index import build, snapshot
from toolscout.index.catalogue import Catalogue
from toolscout.settings import Settings

point = sys.argv[2]

def die_at(module, name, when, count=1):
    real = getattr(module, name)
    left = [count]
    def wrapped(*args, **kwargs):
        if when == "before":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **kwargs)
        if when == "after":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(module, name, wrapped)

if point == "vectors":
    die_at(Catalogue, "put_vectors", "after")
elif point == "first array":
    die_at(snapshot.np, "save", "after", 1)
elif point == "half of the arrays":
    die_at(snapshot.np, "save", "before", 17)
elif point == "syncing":
    die_at(snapshot, "_sync", "before", 9)
elif point == "before the rename":
    die_at(snapshot, "_sync", "after", 1000)
    real = snapshot.current
    def dying(folder):
        if any(f.name.startswith("tmp-") and (f / "meta.json").exists() for f in Path(folder).iterdir()):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(folder)
    snapshot.current = dying
elif point == "before the pointer":
    die_at(snapshot, "point_to", "before")
elif point == "beside the pointer":
    die_at(Path, "replace", "before")
elif point == "before the clean-up":
    die_at(snapshot, "remove_old", "before")

settings = Settings(home=Path(sys.argv[1]), starter=False)
print("building", flush=True)
with Catalogue(settings.database_url) as catalogue:
    build.build_index(catalogue, settings)
print("done", flush=True)
"""

POINTS = [
    "vectors",
    "first array",
    "half of the arrays",
    "syncing",
    "before the rename",
    "before the pointer",
    "beside the pointer",
    "before the clean-up",
]


def run_builder(home: Path, point: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(home), point], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def add_server(catalogue: Catalogue, number: int) -> str:
    server = Server(server_id=f"new/{number}", name=f"Clarinet {number}", description="Teaches the clarinet")
    tool_id = f"new/{number}/practise"
    text = f"Gives clarinet lesson number {number}."
    catalogue.put_server(server, [Tool(tool_id=tool_id, server_id=server.server_id, name="practise", description=text)])
    return tool_id


@pytest.fixture
def built(settings: Settings) -> Settings:
    with Catalogue(settings.database_url) as catalogue:
        catalogue.merge(search_pool.servers(), search_pool.tools())
        build_index(catalogue, settings)
    return settings


@pytest.mark.parametrize("point", POINTS)
def test_killed_build_leaves_the_index_serving(built: Settings, point: str) -> None:
    before = snapshot.current(built.index_dir)
    with Catalogue(built.database_url) as catalogue:
        tool_id = add_server(catalogue, 1)
    builder = run_builder(built.home, point)
    out, err = builder.communicate(timeout=120)
    assert builder.returncode == -signal.SIGKILL, err
    assert "done" not in out
    index = SearchIndex.open(built.index_dir, settings=built)
    assert index.find("join pdf files").hits[0].tool_id == "acme/pdf/merge_pdfs"
    if point == "before the clean-up":
        assert index.get_tool(tool_id) is not None, "the new index was published already"
    else:
        assert index.generation == before
        assert index.get_tool(tool_id) is None
    with Catalogue(built.database_url) as catalogue:
        meta = build_index(catalogue, built)
        if point == "vectors":
            assert meta.embedded < 2, "what the killed build encoded is not encoded again"
        add_server(catalogue, 2)
        build_index(catalogue, built)
    after = SearchIndex.open(built.index_dir, settings=built)
    assert after.get_tool(tool_id) is not None
    left = {f.name for f in built.index_dir.iterdir()} - {snapshot.CURRENT, "build.lock"}
    assert len(left) == 2, f"two generations and nothing else: {left}"


def test_killed_first_build_is_no_index(settings: Settings) -> None:
    with Catalogue(settings.database_url) as catalogue:
        catalogue.merge(search_pool.servers(), search_pool.tools())
    builder = run_builder(settings.home, "half of the arrays")
    builder.communicate(timeout=120)
    assert builder.returncode == -signal.SIGKILL
    assert snapshot.current(settings.index_dir) is None
    with Catalogue(settings.database_url) as catalogue:
        assert build_index(catalogue, settings).embedded == 0
    assert SearchIndex.open(settings.index_dir, settings=settings).find("join pdf files").hits


def test_kills_at_random_moments(built: Settings) -> None:
    for i in range(6):
        with Catalogue(built.database_url) as catalogue:
            add_server(catalogue, i)
        builder = run_builder(built.home, "nowhere")
        assert builder.stdout is not None
        builder.stdout.readline()
        time.sleep(0.06 * i)
        builder.kill()
        builder.communicate(timeout=120)
        index = SearchIndex.open(built.index_dir, settings=built)
        assert index.find("join pdf files").hits[0].tool_id == "acme/pdf/merge_pdfs"
    with Catalogue(built.database_url) as catalogue:
        build_index(catalogue, built)
    assert SearchIndex.open(built.index_dir, settings=built).get_tool("new/5/practise") is not None
