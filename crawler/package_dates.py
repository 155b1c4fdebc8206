"""When packages were first and last released, for the pack (`toolscout.index.pack.sources`, dates.tsv).

    python -m toolscout.crawler.package_dates index/pack/sources/dates.tsv --packages packages.txt --work crawl

Only PyPI's index says so (PEP 700); the times of npm's registry are left alone, as a mirror's are those of its copying.
Pages that the crawl in --work has kept answer without a request. Of the others at most --ask are asked for, the first
of the file first, four at a time; each is kept, so that the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.install.pypi import simple_index
from toolscout.crawler.sources.pypi import is_kept, release_days
from toolscout.crawler.state import State
from toolscout.files import replace_file
from toolscout.index.pack.sources import read_dates

_BATCH = 100


async def collect(fetcher: Fetcher, packages: Sequence[str], out: Path, ask: int, index: str | None = None) -> int:
    """Write the days of PyPI's packages to a file, beside those that are in it; how many were learned.

    ``packages`` are written ``registry:name``. Those of which the file has a first day are not looked at again.
    """
    dates = _known(out)
    names = dict.fromkeys(p for p in packages if p.startswith("pypi:") and not dates.get(p, ("", ""))[0])
    kept = [p for p in names if is_kept(fetcher, p.partition(":")[2], index)]
    others = [p for p in names if p not in set(kept)][:ask]
    learned = 0
    for start in range(0, len(todo := kept + others), _BATCH):
        part = todo[start : start + _BATCH]
        days = await asyncio.gather(*(release_days(fetcher, p.partition(":")[2], index) for p in part))
        found = {package: said for package, said in zip(part, days, strict=True) if said[0]}
        learned += len(found)
        dates |= found
        replace_file(out, "".join(f"{p}\t{first}\t{last}\n" for p, (first, last) in sorted(dates.items())))
    return learned


def _known(out: Path) -> dict[str, tuple[str, str]]:
    return read_dates(out) if out.is_file() else {}


async def _run(options: argparse.Namespace) -> None:
    packages = [line.split("\t")[0].strip() for line in options.packages.read_text("utf-8").splitlines()]
    with State(options.work) as state:
        async with Fetcher(state, max_age=float("inf"), contact=options.contact) as fetcher:
            learned = await collect(fetcher, packages, options.out, options.ask, simple_index())
            print(f"{options.out}: {learned} packages more, {fetcher.requests} requests")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="The file of dates; it is added to.")
    parser.add_argument("--packages", type=Path, required=True, help="npm:NAME or pypi:NAME, one a line.")
    parser.add_argument("--work", type=Path, required=True, help="Work folder of a crawl; its pages answer first.")
    parser.add_argument("--ask", type=int, default=0, help="Most packages that the index is asked about (0).")
    parser.add_argument("--contact", default="", help="Your address, for the index to see.")
    asyncio.run(_run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
