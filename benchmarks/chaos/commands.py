"""The commands that are killed, each with the home that it works on and what it needs around it."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from chaos.wholeness import State, in_child, settings_of, state
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.records import Server, Tool

_WORDS = ("tune", "clean", "repair", "lend", "sell", "measure", "photograph", "insure")
_THINGS = ("clarinet", "bassoon", "violin", "harp", "trumpet", "drum", "organ", "lute", "zither", "horn")


def server(kind: str, number: int) -> tuple[Server, list[Tool]]:
    """A server about one instrument, with a few tools."""
    thing = _THINGS[number % len(_THINGS)]
    server_id = f"{kind}/{number}"
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    names = _WORDS[: 3 + number % 4]
    tools = [
        Tool(tool_id=f"{server_id}/{word}", server_id=server_id, name=word, input_schema=schema,
             description=f"{word.capitalize()} a {thing} of the collection {kind}.")
        for word in names
    ]  # fmt: skip
    return Server(server_id=server_id, name=f"{thing} {number}", description=f"Care for the {thing}."), tools


@dataclass(frozen=True)
class Work:
    """A folder of one point: the home, and whatever else the command needs."""

    folder: Path

    @property
    def home(self) -> Path:
        """Toolscout's home."""
        return self.folder / "home"


class Command:
    """One command. ``before``: the catalogue it starts from; ``may_change``: servers whose reviews it is to change."""

    may_change: ClassVar[tuple[str, ...]] = ()
    indexes: ClassVar[bool] = True
    """Whether it brings the index up to date itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = folder / "base"
        self.after: State = {}
        self.trouble = ""

    def __enter__(self) -> Command:
        (self.base / "home").mkdir(parents=True)
        in_child(self.prepare)
        self.before: State = in_child(state, self.base / "home")
        self.base.chmod(0o755)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    state = staticmethod(state)

    def prepare(self) -> None:
        """Make the home: ten servers, indexed."""
        settings = settings_of(self.base / "home")
        with Catalogue(settings.database_url) as catalogue:
            for number in range(10):
                catalogue.put_server(*server("base", number))
            build_index(catalogue, settings)
            self.more(catalogue)

    def more(self, catalogue: Catalogue) -> None:
        """What else this command needs in the catalogue, not indexed."""

    def fresh(self) -> Work:
        """A copy of the home for one point."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        folder.chmod(0o755)
        shutil.copytree(self.base, folder, dirs_exist_ok=True)
        return Work(folder)

    def environment(self, work: Work) -> dict[str, str]:
        """What the process gets besides this one's environment."""
        return {"TOOLSCOUT_HOME": str(work.home), "TOOLSCOUT_STARTER": "0", "TOOLSCOUT_PACK": "off"}

    def line(self, work: Work) -> list[str]:
        """The command line after ``toolscout``."""
        raise NotImplementedError

    def leftovers(self, work: Work) -> list[str]:
        """What it should not have left, in words."""
        return []


class Import(Command):
    """``catalog import``: 40 servers from JSONL, and the index."""

    def prepare(self) -> None:
        super().prepare()
        made = [server("import", number) for number in range(40)]
        folder = self.base / "files"
        folder.mkdir()
        (folder / "servers.jsonl").write_text("".join(s.model_dump_json() + "\n" for s, _ in made))
        (folder / "tools.jsonl").write_text("".join(t.model_dump_json() + "\n" for _, tools in made for t in tools))

    def line(self, work: Work) -> list[str]:
        return ["catalog", "import", str(work.folder / "files")]


class Index(Command):
    """``index build`` with 30 servers that are not indexed yet."""

    def more(self, catalogue: Catalogue) -> None:
        for number in range(30):
            catalogue.put_server(*server("index", number))

    def line(self, work: Work) -> list[str]:
        return ["index", "build"]


class Review(Command):
    """``review --approve`` of two servers that wait."""

    may_change: ClassVar[tuple[str, ...]] = ("review/0", "review/1")
    verdict: ClassVar[str] = "--approve"

    def more(self, catalogue: Catalogue) -> None:
        for number in range(4):
            catalogue.put_server(*server("review", number), trust=False)

    def line(self, work: Work) -> list[str]:
        return ["review", self.verdict, *self.may_change]


class Block(Review):
    """``review --block`` of the same."""

    verdict: ClassVar[str] = "--block"


class Crawl(Command):
    """``crawl`` of one package from a local registry, in the sandbox, into the catalogue (which it does not index)."""

    indexes: ClassVar[bool] = False

    def __enter__(self) -> Command:
        sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
        try:
            from crawl_registry import PackageServer

            from toolscout.crawler.sandbox import Bubblewrap, Namespaces, probe
        except ImportError as error:
            self.trouble = f"it needs the tests and what they need: {error}"
            return self
        if shutil.which("npm") is None or shutil.which("node") is None:
            self.trouble = "there is no Node.js with npm"
        elif all(probe(kind()) is not None for kind in (Bubblewrap, Namespaces)):
            self.trouble = "no sandbox works here"
        else:
            self._registry = PackageServer()
            super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(AttributeError):
            self._registry.close()

    def environment(self, work: Work) -> dict[str, str]:
        own = dict.fromkeys(("UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"), "")
        return {**super().environment(work), **own, **self._registry.environment()}

    def line(self, work: Work) -> list[str]:
        options = [
            "--work",
            str(work.folder / "crawl"),
            "--package",
            "npm:weather-mcp",
            "--seconds",
            "10",
            "--keep-free",
            "0",
        ]
        return ["crawl", *options, "--catalog", "--json"]

    def leftovers(self, work: Work) -> list[str]:
        """Nothing of it may run, and no installation may stay."""
        wrong = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str(work.folder).encode() in (entry / "cmdline").read_bytes():
                    wrong.append(f"still runs: {(entry / 'cmdline').read_bytes()[:200]!r}")
        return wrong + [f"left: {f}" for n in ("installs", "trash") for f in (work.folder / "crawl" / n).glob("*")]


KINDS: dict[str, Any] = {"import": Import, "index": Index, "review": Review, "block": Block, "crawl": Crawl}
