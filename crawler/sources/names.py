"""Names of packages: from a file, one a line, gzip or not; and names as records."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from toolscout.crawler.classify import by_name
from toolscout.crawler.sources.base import Batch, Found, package_id
from toolscout.errors import BadInput, NotFound
from toolscout.records import Install, Server, Source

PATTERN = "mcp"
"""Which names of a whole registry are taken where nobody says otherwise; of a file, all are."""

BATCH = 500
_MOST_BYTES = 256 * 1024 * 1024


def read_names(path: Path) -> list[str]:
    """The names in a file; blank lines and those that begin with ``#`` are left out.

    Raises:
        NotFound: there is no such file.
        BadInput: it cannot be read.
    """
    check_file(path)
    try:
        with gzip.open(path) if path.read_bytes()[:2] == b"\x1f\x8b" else path.open("rb") as stream:
            data = stream.read(_MOST_BYTES)
    except (OSError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def check_file(path: Path) -> None:
    """Raises NotFound where there is nothing, BadInput where there is no regular file."""
    hint = "Name a text file with one package name a line."
    if not path.exists():
        raise NotFound(f"There is no file {path}.", hint)
    if not path.is_file():
        raise BadInput(f"{path} is no regular file.", hint)


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that a pattern finds, in alphabetical order. Raises BadInput for a bad pattern."""
    try:
        wanted = re.compile(pattern, re.I)
    except re.error as error:
        raise BadInput(f"{pattern!r} is no regular expression: {error}.") from None
    return sorted({name for name in names if wanted.search(name)})


def pattern_for(names: Path | None, pattern: str | None) -> str:
    """The pattern that the user gave; else `PATTERN` for a registry, and one that finds every name for a file."""
    return pattern if pattern is not None else PATTERN if names is None else ""


def narrowed(names: Path | None, pattern: str, address: str | None) -> str:
    """What tells a listing of names from the usual one (`Source.narrowed`)."""
    parts = (
        f"names {names.resolve()}" if names is not None else "",
        f"pattern {pattern}" if pattern != pattern_for(names, None) else "",
        f"address {address}" if address else "",
    )
    return "\n".join(part for part in parts if part)


def found(registry: str, package: str, *, marker: str | None = None) -> Found:
    """A package that only its name is known of."""
    verdict, reason = by_name(package)
    server = Server(
        server_id=package_id(registry, package),
        name=package,
        sources=[Source(marketplace=registry, id=package)],
        install=Install(registry=registry, package=package),
    )
    return Found(server, verdict, reason, marker=marker)


def start_of(names: Sequence[str], cursor: str | None) -> int:
    """The place after the name that a cursor holds: names may have come and gone since."""
    if cursor is None:
        return 0
    import bisect

    return bisect.bisect_right(names, cursor)


def batch(names: Sequence[str], start: int, entries: list[Found]) -> Batch:
    """A batch that ends before ``start + BATCH``; its cursor is the last name of it."""
    end = start + BATCH
    return Batch(entries, names[end - 1] if end < len(names) else None)
