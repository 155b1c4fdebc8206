"""The floors of the building: which room may import which, and what the server must never load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("index", "server", "crawler", "synth", "finetune", "eval")

BELOW: dict[str, set[str]] = {
    "core": {"core"},
    "index": {"core", "index"},
    "server": {"core", "index", "server"},
    "crawler": {"core", "index", "crawler"},
    "synth": {"core", "index", "synth"},
    "finetune": {"core", "index", "server", "crawler", "synth", "finetune"},
    "eval": {"core", "index", "server", "crawler", "synth", "finetune", "eval"},
}
"""core <- index <- {server, crawler, synth} <- finetune <- eval: the rooms that the files of each may import."""

ENTRANCE = ("cli.py", "__main__.py", "commands")
"""The command line stands above all rooms: its commands import them, each when it runs."""

HEAVY = ("torch", "transformers", "trl", "sentence_transformers", "playwright", "matplotlib")


def room_of(path: Path) -> str:
    """The room of a file; ``entrance`` for the command line."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "toolscout":
        return parts[0]
    return "entrance" if parts[1] in ENTRANCE else "core"


def files() -> list[Path]:
    core = [p for p in (ROOT / "toolscout").iterdir() if p.suffix == ".py"]
    core += (ROOT / "toolscout" / "commands").rglob("*.py")
    return sorted([*core, *(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))])


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a source imports, also inside functions; never relatively."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((node.lineno, str(a.value)) for a in node.args[:1] if isinstance(a, ast.Constant))


def room_imported(name: str) -> str | None:
    """The room that an import reaches into; None for other packages."""
    parts = name.split(".")
    if parts[0] != "toolscout":
        return None
    if len(parts) > 1 and parts[1] in ROOMS:
        return parts[1]
    return "entrance" if len(parts) > 1 and parts[1] in ("cli", "__main__", "commands") else "core"


def breaches(room: str, source: str) -> list[str]:
    """Imports that go upwards (or, for the server and below, that are heavy)."""
    found = []
    for line, name in imported(source):
        target = room_imported(name)
        if room != "entrance" and target is not None and target not in BELOW[room]:
            found.append(f"line {line}: {room} imports {name}")
        if room in ("core", "entrance", "server") and name.split(".")[0] in HEAVY:
            found.append(f"line {line}: {room} imports {name}")
        if name.split(".")[0] in ROOMS:
            found.append(f"line {line}: {name} makes a second module object, import toolscout.{name}")
    return found


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_downwards(path: Path) -> None:
    assert breaches(room_of(path), path.read_text(encoding="utf-8")) == []


def test_the_check_sees_every_room() -> None:
    assert {room_of(p) for p in files()} == {*BELOW, "entrance"}


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "from toolscout.index.search import SearchIndex"),
        ("core", "def f():\n    import toolscout.cli"),
        ("index", "from toolscout.server import pool"),
        ("index", "from toolscout import server"),
        ("server", "import toolscout.eval.calls.measure"),
        ("server", "import importlib\nimportlib.import_module('toolscout.finetune')"),
        ("server", "def f():\n    import torch.nn"),
        ("synth", "from toolscout.crawler import x"),
        ("finetune", "from toolscout.eval import x"),
        ("eval", "from index.search import SearchIndex"),
    ],
)
def test_the_check_finds_breaches(room: str, source: str) -> None:
    assert len(breaches(room, source)) == 1


WATCH = f"""
import sys
class Watch:
    asked = []
    def find_spec(self, name, path=None, target=None):
        # Only imports count: `importlib.util.find_spec` asks whether a package is there without loading it.
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "_find_and_load":
            frame = frame.f_back
        if frame is not None and name in {HEAVY!r}:
            Watch.asked.append(name)
sys.meta_path.insert(0, Watch())
"""
"""Notes attempts to import what is heavy, whether it is installed here or not."""


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", WATCH + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_watch_sees_an_import_of_what_is_not_installed() -> None:
    code = (
        "import importlib.util\nimportlib.util.find_spec('trl')\ntry:\n    import matplotlib\nexcept ImportError: pass"
    )
    assert run(f"{code}\nprint(*Watch.asked)") == ["matplotlib"]


def test_the_server_loads_nothing_heavy(home: Path) -> None:
    code = """
import importlib, pkgutil
import toolscout.server
names = [m.name for m in pkgutil.walk_packages(toolscout.server.__path__, "toolscout.server.")]
for name in names:
    importlib.import_module(name)
assert len(names) > 20, names
upper = ("toolscout.crawler", "toolscout.synth", "toolscout.finetune", "toolscout.eval")
print(*Watch.asked, *[m for m in sys.modules if m.startswith(upper)])
"""
    assert run(code) == []


def test_a_running_engine_loads_nothing_heavy(home: Path) -> None:
    """Not only the imports: opening the catalogue, building an index and searching it do without as well."""
    code = """
import asyncio
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.records import Server, Tool
from toolscout.server.engine import Engine
from toolscout.settings import Settings
settings = Settings(starter=False)
async def main():
    with Catalogue(settings.database_url) as catalogue:
        tool = Tool(tool_id="w/forecast", server_id="w", name="forecast", description="The weather forecast.")
        catalogue.put_server(Server(server_id="w"), [tool])
        build_index(catalogue, settings)
    async with Engine(settings) as engine:
        await engine.loaded()
        found = await engine.find_tools(query="weather forecast")
        assert found["tools"], found
asyncio.run(main())
print(*Watch.asked)
"""
    assert run(code) == []
