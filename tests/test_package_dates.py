"""When packages were released: from pages that a crawl kept, else asked of the index, no more often than allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawl_registry import LocalServer

from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.package_dates import collect, main
from toolscout.crawler.state import State

_KIND = "application/vnd.pypi.simple.v1+json"
PACKAGES = ["pypi:b_mcp", "npm:d", "pypi:a-mcp", "pypi:c-mcp", "pypi:gone"]


@pytest.fixture
def index() -> Iterator[LocalServer]:
    """A simple index in JSON, without what it has no page of."""

    def answer(path: str, _: dict[str, str]) -> tuple[int, str, bytes]:
        name = path.strip("/").removeprefix("simple/")
        moments = {
            "a-mcp": ["2025-03-01T12:00:00.5Z", "2026-09-08T01:00:00Z", "2025-04-01T00:00:00Z"],
            "b-mcp": ["2026-01-02T03:04:05Z"],
            "c-mcp": [None, "soon"],
        }
        if name not in moments:
            return 404, "text/plain", b""
        files = [{"filename": f"{n}.whl", "upload-time": moment} for n, moment in enumerate(moments[name])]
        return 200, _KIND, json.dumps({"files": [*files, "no file"]}).encode()

    server = LocalServer(answer)
    yield server
    server.close()


async def test_days_are_learned_kept_and_not_asked_for_again(index: LocalServer, tmp_path: Path) -> None:
    out = tmp_path / "dates.tsv"
    out.write_text("pypi:a-mcp\t\t2026-09\npypi:other\t2024-01-01\t2024-02-01\n")
    simple = f"{index.url}/simple"
    with State(tmp_path / "work") as state:
        async with Fetcher(state, max_age=float("inf")) as fetcher:
            assert await collect(fetcher, PACKAGES, out, 0, simple) == 0
            assert index.asked == [], "nobody is asked unless that was asked for"
            assert await collect(fetcher, PACKAGES, out, 1, simple) == 1
            assert index.asked == ["/simple/b-mcp/"]
            assert await collect(fetcher, PACKAGES, out, 9, simple) == 1
        assert sorted(index.asked[1:]) == ["/simple/a-mcp/", "/simple/c-mcp/", "/simple/gone/"]
        assert out.read_text() == (
            "pypi:a-mcp\t2025-03-01\t2026-09-08\npypi:b_mcp\t2026-01-02\t2026-01-02\n"
            "pypi:other\t2024-01-01\t2024-02-01\n"
        )
        out.unlink()
        async with Fetcher(state, max_age=float("inf")) as fetcher:
            assert await collect(fetcher, PACKAGES, out, 0, simple) == 2
            assert fetcher.requests == 0, "kept pages answer"


def test_the_command_line_asks_the_users_own_index(
    index: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
    (tmp_path / "packages.txt").write_text("pypi:a-mcp\t12\n")
    out = tmp_path / "dates.tsv"
    main([str(out), "--packages", str(tmp_path / "packages.txt"), "--work", str(tmp_path / "work"), "--ask", "5"])
    assert out.read_text() == "pypi:a-mcp\t2025-03-01\t2026-09-08\n"
    assert "1 packages more, 1 requests" in capsys.readouterr().out
