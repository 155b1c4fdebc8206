"""The call log, kept off the hot path: notes are queued and written to the catalogue by a thread of their own.

Argument values are never noted; the query is, because rankings and training pairs learn from it, but what in it looks
like a secret is hidden. The name of a tool that is not there, which anybody can make up, is left out.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolscout.index.catalogue import Catalogue

logger = logging.getLogger(__name__)

_QUIET_SECONDS = 2.0  # notes wait this long for company, so that a burst is one transaction
_MAX_WAITING = 10_000
_MAX_QUERY = 2000
_MAX_LOOKED_AT = 20_000  # more than is kept: half of a secret might not look like one


class Journal:
    """Collects notes and writes them in batches. A catalogue that cannot be written costs notes, never a call."""

    def __init__(self, open_catalogue: Callable[[], Catalogue]) -> None:
        self._open_catalogue = open_catalogue
        self._notes: queue.Queue[dict[str, Any] | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None

    def note(self, kind: str, query: str, tool_id: str | None, outcome: str, started: float) -> None:
        """Note one find, suggest or invoke; ``started`` is the `time.perf_counter` at its start."""
        entry = {
            "kind": kind,
            "query": query[:_MAX_LOOKED_AT],
            "tool_id": tool_id,
            "outcome": outcome,
            "ms": (time.perf_counter() - started) * 1000,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        try:
            self._notes.put_nowait(entry)
        except queue.Full:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what is waiting and stop."""
        if self._thread is not None:
            self._notes.put(None)
            self._thread.join(timeout=10)
            self._thread = None

    def _write_all(self) -> None:
        closing = False
        while not closing:
            first = self._notes.get()
            if first is None:
                return
            batch = [first]
            until = time.monotonic() + _QUIET_SECONDS
            while (wait := until - time.monotonic()) > 0:
                try:
                    entry = self._notes.get(timeout=wait)
                except queue.Empty:
                    break
                if entry is None:
                    closing = True
                    break
                batch.append(entry)
            self._write(batch)

    def _write(self, batch: list[dict[str, Any]]) -> None:
        from toolscout.index.catalogue import CallLog
        from toolscout.server.secrecy.suspect import hide_suspect

        try:
            catalogue = self._open_catalogue()
            named = {entry["tool_id"] for entry in batch if entry["kind"] == "invoke"}
            unknown = {name for name in named if not isinstance(name, str) or catalogue.get_tool(name) is None}
            for entry in batch:
                # Here and not in `note`: it takes a moment, and nobody waits for this thread.
                entry["query"] = hide_suspect(entry["query"])[:_MAX_QUERY]
                entry["tool_id"] = None if entry["tool_id"] in unknown else entry["tool_id"]
            catalogue.log_calls([CallLog(**entry) for entry in batch])
        except Exception as error:
            logger.warning("call log not written: %s", type(error).__name__)
