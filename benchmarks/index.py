"""Building the index from nothing, and adding one server to it.

    python benchmarks/index.py --servers servers.jsonl.gz --tools tools.jsonl.gz --json out.json

Works in a temporary home. Reports seconds to import the catalogue, to build the index with no vector cached, and to add
servers of 20 new tools one after the other, each from `put_server` to the new generation in place (median).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from twenty import server_of_twenty

from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.index.encoder import make_encoder
from toolscout.index.transfer import import_files
from toolscout.settings import Settings


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=Path, nargs="*", default=[])
    parser.add_argument("--tools", type=Path, nargs="+", required=True)
    parser.add_argument("--adds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home))
        encoder = make_encoder(settings)
        with Catalogue(settings.database_url) as catalogue:
            started = time.perf_counter()
            import_files(catalogue, servers=options.servers, tools=options.tools)
            imported = time.perf_counter() - started
            started = time.perf_counter()
            meta = build_index(catalogue, settings, encoder=encoder)
            built = time.perf_counter() - started
            adds, embedded = [], []
            for number in range(options.adds):
                server, tools = server_of_twenty(number)
                started = time.perf_counter()
                catalogue.put_server(server, tools)
                added = build_index(catalogue, settings, encoder=encoder)
                adds.append(time.perf_counter() - started)
                embedded.append(added.embedded)
    result = {
        "tools": meta.tools,
        "import_s": round(imported, 2),
        "build_s": round(built, 2),
        "add_server_s": {"median": round(statistics.median(adds), 3), "max": round(max(adds), 3)},
        "embedded_per_add": embedded,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
