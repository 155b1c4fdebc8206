"""Moments as text: ISO 8601 from users and services, RFC 3339 in UTC for services and the crawl's memory."""

from __future__ import annotations

from datetime import UTC, datetime

from toolscout.errors import BadInput


def moment(text: str) -> datetime:
    """An ISO 8601 date or time; one that names no time zone is UTC, wherever it is read. Raises ValueError."""
    found = datetime.fromisoformat(text.strip())
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def rfc3339(text: str) -> str:
    """The same moment as services want it, to the second: ``2026-11-01`` gives ``2026-11-01T00:00:00Z``.

    Raises:
        BadInput: it is no date.
    """
    try:
        return moment(text).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        raise BadInput(f"{text!r} is no date.", "Write 2026-11-01, 2026-11-01T12:00:00Z, or 'last'.") from None
