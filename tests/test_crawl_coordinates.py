"""A crawl made again from the coordinates of another."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawl_registry import PACKAGES, PackageServer
from crawl_work import needs_node, needs_sandbox, run_cli, work_folder

from toolscout.crawler.coordinates import Coordinate, digest, parse, read
from toolscout.errors import BadInput, NotFound
from toolscout.records import Tool


@pytest.mark.parametrize(
    ("text", "coordinate"),
    [
        ("npm:a-mcp", Coordinate("npm", "a-mcp")),
        ("npm:@s/a-mcp@1.2.3-rc.1 0123abcd", Coordinate("npm", "@s/a-mcp", "1.2.3-rc.1", "0123abcd")),
        ("pypi:a_mcp@2026.1", Coordinate("pypi", "a_mcp", "2026.1")),
    ],
)
def test_one_line(text: str, coordinate: Coordinate) -> None:
    assert parse(text) == coordinate
    assert str(coordinate) == text


@pytest.mark.parametrize("text", ["a-mcp", "oci:image", "npm:", "npm:a mcp@", "npm:@@1", "cargo:x@1"])
def test_no_coordinate(text: str) -> None:
    with pytest.raises(BadInput, match="is no package"):
        if parse(text).digest:
            raise BadInput(f"{text} is no package: a digest was read out of it.")


def test_a_file_of_them(tmp_path: Path) -> None:
    path = tmp_path / "packages.txt.gz"
    path.write_bytes(gzip.compress(b"# from a crawl\nnpm:a-mcp@1\n\npypi:b-mcp\n"))
    assert [c.server_id for c in read(path)] == ["npm/a-mcp", "pypi/b-mcp"]
    with pytest.raises(NotFound):
        read(tmp_path / "none.txt")


def test_the_digest_tells_tools_apart() -> None:
    one, two = (Tool(tool_id=f"s/{n}", server_id="s", name=n, description=n, input_schema={}) for n in "ab")
    assert digest([one, two]) == digest([two, one]) != digest([one])
    assert digest([one, two.model_copy(update={"description": "Another."})]) != digest([one, two])


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    server = PackageServer()
    yield server
    server.close()


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    for first in work_folder():
        for second in work_folder():
            yield first, second


@needs_sandbox
@needs_node
def test_a_crawl_made_again(packages: PackageServer, folders: tuple[Path, Path], tmp_path: Path) -> None:
    env = {**packages.environment(), "TOOLSCOUT_HOME": str(tmp_path)}
    first, second = folders
    out = tmp_path / "out"
    for name, version in (("pinned-mcp", "1.0.0"), ("moving-mcp", "1.0.0")):
        packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name=name, version=version)
    named = ["--package", "npm:pinned-mcp", "--package", "npm:moving-mcp"]
    done = run_cli("crawl", "--work", str(first), *named, "--export", str(out), "--json", env=env)
    assert done.returncode == 0, done.stderr
    lines = (out / "packages.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in lines] == ["npm:moving-mcp@1.0.0", "npm:pinned-mcp@1.0.0"]

    # A newer version changes nothing: the one of the first crawl is installed. Tools that do change are seen.
    packages.publish_npm(
        PACKAGES / "npm" / "weather-mcp",
        name="pinned-mcp",
        version="2.0.0",
        files={"index.js": "require('tiny-mcp').serve('w', [{ name: 'other', inputSchema: { type: 'object' } }])"},
    )
    lines[0] = lines[0].split(" ")[0] + " 0000000000000000"
    (out / "packages.txt").write_text("\n".join([*lines, "npm:gone-for-good-mcp@1.0.0 0000000000000000"]))
    again = run_cli("crawl", "--work", str(second), "--packages", str(out / "packages.txt"), "--json", env=env)
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert told["again"] == {"same": 1, "other_tools": 1, "no_tools": 1, "not_tried": 0}
