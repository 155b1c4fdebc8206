"""What a pack is built from beside a crawl: our own files, one fact or line each.

lines.tsv         server id, what it is for in one line of ours
downloads.tsv     package (npm:NAME or pypi:NAME), downloads a month
dates.tsv         package, days of its first and its newest release (`toolscout.crawler.package_dates`)
vendors.jsonl     servers known as a whole: hosted, with a login, or an image
products.tsv      the lexicon (`toolscout.index.products`)
exemplars.jsonl   worked calls: query, tool_id, arguments
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.errors import BadInput, NotFound
from toolscout.index.document import name_words
from toolscout.index.products import Product, read_products
from toolscout.jsonl import read_objects
from toolscout.records import EnvVar, Install, JsonObject, Server, ServerState, Source, Transport, sha256_hex

LINES, DOWNLOADS, DATES, VENDORS, PRODUCTS, EXEMPLARS = (
    "lines.tsv", "downloads.tsv", "dates.tsv", "vendors.jsonl", "products.tsv", "exemplars.jsonl",
)  # fmt: skip

_DATE = re.compile(r"(?:\d{4}-\d\d(?:-\d\d)?)?")


@dataclass(frozen=True)
class Vendor:
    """A server known as a whole: its record, and what it covers, a phrase each."""

    server: Server
    covers: tuple[str, ...]
    product: Product


@dataclass(frozen=True)
class Exemplar:
    """A worked call."""

    query: str
    tool_id: str
    arguments: JsonObject


@dataclass
class PackSources:
    """All of the files above; one that is not there is empty. ``hashes`` are their SHA-256."""

    lines: dict[str, str] = field(default_factory=dict)
    downloads: dict[str, int] = field(default_factory=dict)
    dates: dict[str, tuple[str, str]] = field(default_factory=dict)
    vendors: list[Vendor] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    exemplars: list[Exemplar] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> PackSources:
        """Read a folder of sources. Raises NotFound where there is none, BadInput for a malformed line."""
        if not folder.is_dir():
            raise NotFound(f"There is no folder {folder}.", "Name one with lines.tsv, vendors.jsonl and so on.")
        sources = PackSources()
        readers: dict[str, Callable[[Path], None]] = {
            LINES: lambda path: sources.lines.update(_pairs(path)),
            DOWNLOADS: lambda path: sources.downloads.update({k: int(v) for k, v in _pairs(path)}),
            DATES: lambda path: sources.dates.update(read_dates(path)),
            VENDORS: lambda path: sources.vendors.extend(_vendor(row) for _, row in read_objects(path)),
            PRODUCTS: lambda path: sources.products.extend(read_products(path)),
            EXEMPLARS: lambda path: sources.exemplars.extend(_exemplar(row) for _, row in read_objects(path)),
        }
        for name, read in readers.items():
            path = folder / name
            if path.is_file():
                read(path)
                sources.hashes[name] = sha256_hex(path.read_text("utf-8"))
        return sources

    def known(self, server: Server) -> Server:
        """A server with the downloads and the dates that are known of its package."""
        package = f"{server.install.registry}:{server.install.package}"
        first, last = self.dates.get(package, ("", ""))
        facts = {"popularity": self.downloads.get(package), "published": first or None, "updated": last or None}
        return server.model_copy(update={name: value for name, value in facts.items() if value is not None})


def read_dates(path: Path) -> dict[str, tuple[str, str]]:
    """Days of the first and of the newest release by package; either may be empty, or a month.

    Raises BadInput for what is no date.
    """
    dates = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        package, first, last = [*line.split("\t"), "", ""][:3]
        if not all(_DATE.fullmatch(date) for date in (first, last)):
            raise BadInput(f"{path}, line {number}: {first!r} or {last!r} is no date.", "Write 2025-03-01, or 2025-03.")
        dates[package] = first, last
    return dates


def _pairs(path: Path) -> list[tuple[str, str]]:
    lines = (line.split("\t") for line in path.read_text("utf-8").splitlines() if line.strip())
    return [(parts[0], parts[1]) for parts in lines if len(parts) == 2]


def _vendor(values: JsonObject) -> Vendor:
    url, registry = values.get("url"), values["registry"]
    transport = Transport(values.get("transport") or ("http" if url else "stdio"))
    server = Server(
        server_id=values["id"],
        name=values["name"],
        description=values["line"],
        category=values.get("category"),
        sources=[Source(marketplace="vendor", id=values["id"], url=values.get("docs"))],
        transport=transport,
        install=Install(
            registry=registry, package=values.get("package"), url=url,
            auth="oauth" if url and values.get("auth") == "oauth" else None,
            env=[EnvVar(name=name, required=True, secret=True) for name in values.get("env") or ()],
        ),
        homepage=values.get("docs"),
        publisher=values.get("publisher"),
        official=values.get("official", True),
        state=ServerState.NEEDS_KEY if values.get("auth") == "key" else ServerState.NEEDS_INSTALL,
    )  # fmt: skip
    covers = [*(values.get("covers") or ()), *map(name_words, values.get("tools") or ())]
    product = Product(values["name"], tuple(alias for alias in values.get("aliases") or () if " " in alias))
    return Vendor(server, tuple(dict.fromkeys(covers)), product)


def _exemplar(values: JsonObject) -> Exemplar:
    return Exemplar(values["query"], values["tool_id"], values["arguments"])
