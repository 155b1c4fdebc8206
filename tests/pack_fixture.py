"""A small pack for the tests: the search pool as crawled packages, three vendors, a lexicon, lines and worked calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import search_pool

from toolscout.records import EnvVar, Install, JsonObject, Server, ServerState, Source, Tool
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.index.encoder import Encoder
    from toolscout.index.pack.file import Manifest
    from toolscout.index.pack.sources import PackSources
    from toolscout.index.storage import GenerationStorage

DATE = "2026-11-20"

LINES = {
    "acme/weather": "Forecasts, weather alerts and air quality by city.",
    "acme/github": "Manage GitHub repositories, issues and pull requests.",
}
VENDORS: list[JsonObject] = [
    {
        "id": "vendor/notion", "name": "Notion", "publisher": "Notion", "official": True, "auth": "oauth",
        "line": "Pages, databases and comments in a Notion workspace.", "registry": "url",
        "url": "https://mcp.notion.example/mcp", "docs": "https://docs.notion.example",
        "covers": ["create or update a page", "query a database of pages"],
    },
    {
        "id": "vendor/stripe", "name": "Stripe", "publisher": "Stripe", "official": True, "auth": "key",
        "line": "Payments, invoices and customers on Stripe.", "registry": "npm", "package": "@stripe/mcp",
        "env": ["STRIPE_SECRET_KEY"], "covers": ["refund a payment", "create an invoice"], "tools": ["list_customers"],
    },
    {
        "id": "vendor/slack", "name": "Slack", "publisher": "Slack Technologies", "official": True,
        "line": "Messages and channels on Slack.", "registry": "npm", "package": "@acme/slack-mcp",
        "docs": "https://docs.slack.example/mcp",
        "covers": ["send a message"],
    },
]  # fmt: skip
PRODUCTS = """GitHub\tgithub.com\tname
GitLab\tgitlab.com\tname
Slack\t\tword
Notion\t\tword
Stripe\t\tword
Box\t\tword
X\t\tword
YouTube\tYT\tname
Spotify\t\tname
PostgreSQL\tPostgres|psql\tname
Salesforce\tSFDC\tname
Home Assistant\tHass\tname
Google Maps\tGMaps\tname
Google Drive\tGDrive\tname
Infor\t\tname
Visual Studio Code\tVS Code\tname
C++\t\tname
"""


def packed_servers() -> list[Server]:
    """The pool's servers as a crawl found them: npm packages, none installed."""
    made = []
    for server in search_pool.servers():
        name = server.server_id.rsplit("/", 1)[-1]
        made.append(
            server.model_copy(
                update={
                    "state": ServerState.NEEDS_KEY if name == "spotify" else ServerState.NEEDS_INSTALL,
                    "sources": [Source(marketplace="npm", id=f"@acme/{name}-mcp")],
                    "install": Install(
                        registry="npm", package=f"@acme/{name}-mcp", version="1.2.0",
                        env=[EnvVar(name="SPOTIFY_TOKEN", required=True, secret=True)] if name == "spotify" else [],
                    ),
                    "license": "MIT",
                    "homepage": None if name == "slack" else f"https://github.com/acme-inc/{name}",
                    "checked_at": "2026-11-18T10:00:00+00:00",
                    "popularity": 90_000.0 if name == "github" else 100.0,
                }
            )
        )  # fmt: skip
    return made


def sources_folder(folder: Path) -> Path:
    """The sources above as files."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lines.tsv").write_text("".join(f"{name}\t{line}\n" for name, line in LINES.items()))
    (folder / "vendors.jsonl").write_text("".join(json.dumps(vendor) + "\n" for vendor in VENDORS))
    (folder / "products.tsv").write_text(PRODUCTS)
    (folder / "dates.tsv").write_text("npm:@acme/fetch-mcp\t2025-03-01\t2026-09-08\nnpm:@acme/github-mcp\t\t2026-10\n")
    (folder / "downloads.tsv").write_text("npm:@acme/fetch-mcp\t250000\n")
    calls = [
        {"query": call.query, "tool_id": gold.tool_id, "arguments": gold.arguments}
        for call in search_pool.exemplars()
        for gold in call.gold
    ]
    calls.append({"query": "of a tool that is gone", "tool_id": "acme/gone/tool", "arguments": {}})
    (folder / "exemplars.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls))
    return folder


def generation_of(home: Path, servers: Sequence[Server], tools: Sequence[Tool]) -> GenerationStorage:
    """An index of a catalogue with these."""
    from toolscout.index import snapshot
    from toolscout.index.build import build_index
    from toolscout.index.catalogue import Catalogue
    from toolscout.index.storage import GenerationStorage

    settings = Settings(home=home, starter=False, pack="off")
    with Catalogue(settings.database_url) as catalogue:
        catalogue.merge(servers, tools)
        build_index(catalogue, settings)
    name = snapshot.current(settings.index_dir)
    assert name is not None
    return GenerationStorage(settings.index_dir / name, snapshot.read_meta(settings.index_dir / name))


@dataclass(frozen=True)
class Built:
    """A pack and what it was built from."""

    path: Path
    manifest: Manifest
    generation: GenerationStorage
    sources: PackSources
    encoder: Encoder


def build(
    folder: Path, servers: Sequence[Server], tools: Sequence[Tool], sources: PackSources, *, date: str = DATE
) -> Built:
    """Build a pack of these."""
    from toolscout.index.encoder import make_encoder
    from toolscout.index.pack.build import build_pack

    folder.mkdir(parents=True, exist_ok=True)
    encoder = make_encoder(Settings(home=folder, starter=False))
    generation = generation_of(folder, servers, tools)
    path = folder / f"{date}.pack"
    manifest = build_pack(generation, encoder, sources, path, date=date)
    return Built(path, manifest, generation, sources, encoder)


@pytest.fixture(scope="session")
def built_pack(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The small pack. Nobody may write to it."""
    from toolscout.index.pack.sources import PackSources

    folder = tmp_path_factory.mktemp("pack")
    sources = PackSources.read(sources_folder(folder / "sources"))
    return build(folder, packed_servers(), search_pool.tools(), sources)
