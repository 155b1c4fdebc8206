"""What was read of a marketplace's entries, kept between runs: an entry's page is read once, not at every run.

It lies in the fetcher's page cache, under addresses that no site has; the crawl's memory has a table of its own
for them.
"""

from __future__ import annotations

import json
import time

from toolscout.crawler import moments
from toolscout.crawler.fetch import Fetcher, Page
from toolscout.crawler.sources.base import Found, Verdict
from toolscout.records import Server

KEPT = "toolscout-kept:"
"""What those addresses begin with."""

_VERSION = 1
_FAILED = 0.25
"""A page that gave nothing is tried again after this part of the time."""


class Kept:
    """Records and failures of one marketplace. ``refresh_days``: how long they hold."""

    def __init__(self, fetcher: Fetcher, marketplace: str, refresh_days: float) -> None:
        self._cache = fetcher._cache
        self._prefix = f"{KEPT}{_VERSION}:{marketplace}:"
        self._seconds = refresh_days * 86400

    def get(self, entry: str) -> tuple[Found | str, float] | None:
        """What is known of an entry (a record, or the sentence why there is none) and when it was read; None if
        nothing is, or not any more."""
        page = self._cache.get_page(self._prefix + entry) if self._cache is not None else None
        if page is None:
            return None
        try:
            value = json.loads(page.body)
            known: Found | str = value["problem"] if "problem" in value else _found(value)
        except (ValueError, KeyError, TypeError):
            return None
        holds = self._seconds * (_FAILED if isinstance(known, str) else 1.0)
        return (known, page.fetched_at) if time.time() - page.fetched_at < holds else None

    def put(self, entry: str, known: Found | str) -> None:
        """Keep a record, or why there is none."""
        if self._cache is None:
            return
        value = {"problem": known} if isinstance(known, str) else _plain(known)
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self._cache.put_page(Page(self._prefix + entry, body, "application/json", "", time.time()))


def moment(text: str | None) -> float:
    """Seconds since the epoch of an ISO 8601 time, UTC where it names no zone; 0 for none or nonsense."""
    try:
        return moments.moment(text or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _plain(found: Found) -> dict[str, object]:
    return {
        "server": found.server.model_dump(mode="json", exclude_none=True),
        "verdict": str(found.verdict),
        "reason": found.reason,
        "marker": found.marker,
        "published": found.published,
        "tools": None if found.tools is None else list(found.tools),
        "args": list(found.args),
    }


def _found(value: dict[str, object]) -> Found:
    tools, args = value.get("tools"), value.get("args")
    return Found(
        server=Server.model_validate(value["server"]),
        verdict=Verdict(str(value["verdict"])),
        reason=str(value.get("reason") or ""),
        marker=_text(value.get("marker")),
        published=_text(value.get("published")),
        tools=tuple(tools) if isinstance(tools, list) else None,
        args=tuple(map(str, args)) if isinstance(args, list) else (),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
