"""Catalogue to JSON Lines and back: streaming, in batches, idempotent.

An import adds and updates; it never removes a server, a tool or an exemplar, whatever the files leave out: only listing
a live server (`Catalogue.put_server`) says that a tool is gone. Each batch is one transaction: a killed import leaves
all that was there before and whole batches of what is new; running it again completes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from toolscout.errors import BadInput, NotFound
from toolscout.index.catalogue import Catalogue, batched
from toolscout.jsonl import count_lines, parse_record, read_objects, write_records
from toolscout.records import Call, JsonObject, Record, Server, ServerState, Tool, Trajectory

Paths = Sequence[Path | str]
Progress = Callable[[int, int], None]
R = TypeVar("R", bound=Record)

BATCH = 500
"""Records of one transaction."""

BAD_KEPT = 1000
"""Most malformed lines that a report quotes; all are counted."""


@dataclass
class ImportReport:
    """What an import did. Counts of records; ``bad`` quotes malformed lines (``file:line: reason``)."""

    servers: int = 0
    """Servers read."""
    servers_changed: int = 0
    """Servers that are new or differ from what was there."""
    servers_made: int = 0
    """Servers made because only their tools were given."""
    tools: int = 0
    """Tools read, without repeated ones."""
    tools_added: int = 0
    tools_changed: int = 0
    tools_unchanged: int = 0
    tools_repeated: int = 0
    """Lines whose tool_id an earlier line of the same import had; the first one counts."""
    calls: int = 0
    calls_changed: int = 0
    calls_left_out: int = 0
    """Calls in which the scanner found what would hold a tool back."""
    trajectories: int = 0
    bad_count: int = 0
    bad: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return asdict(self)


def import_files(
    catalogue: Catalogue,
    *,
    servers: Paths = (),
    tools: Paths = (),
    calls: Paths = (),
    trajectories: Paths = (),
    skip_bad: bool = False,
    progress: Progress | None = None,
    trust: bool = True,
    accept_changes: bool = False,
) -> ImportReport:
    """Merge JSON Lines files (``.jsonl``, ``.jsonl.gz``) into the catalogue. Memory does not grow with the files, save
    for 16 bytes of digest per tool.

    Args:
        servers, tools, calls, trajectories: files of each kind. Tools whose server is in no file and not in the
            catalogue get one of state ``unavailable``, described by their ``server_description`` where they have it.
        skip_bad: note malformed lines in the report and go on, instead of stopping at the first.
        progress: called after each batch with (records done, records in all files).
        trust, accept_changes: reviews of new and changed tools, as in `Catalogue.put_server`.

    Raises:
        NotFound: a file does not exist (nothing has been imported then).
        BadInput: a malformed line, ``file:line: reason``; what stands before it may be in the catalogue.
    """
    paths = [Path(p) for p in (*servers, *tools, *calls, *trajectories)]
    for path in paths:
        if not path.exists():
            raise NotFound(f"There is no file {path}.", "Check the path; nothing was imported.")
    work = _Import(catalogue, skip_bad, trust, accept_changes, progress)
    if progress is not None:
        work.total = sum(map(count_lines, paths))
    work.servers(servers)
    work.tools(tools)
    work.calls(calls)
    work.trajectories(trajectories)
    return work.report


def export_files(catalogue: Catalogue, folder: Path | str, *, gz: bool = True) -> dict[str, int]:
    """Write ``servers``, ``tools``, ``calls`` and ``trajectories`` as ``.jsonl.gz`` (or ``.jsonl``) into a folder.

    Each file is written atomically; equal catalogues give equal bytes. Vectors and the call log stay.

    Returns:
        Records by file name.
    """
    folder = Path(folder)
    suffix = ".jsonl.gz" if gz else ".jsonl"
    kinds: dict[str, Iterable[Record]] = {
        "servers": catalogue.servers(),
        "tools": catalogue.tools(),
        "calls": catalogue.exemplars(),
        "trajectories": catalogue.trajectories(),
    }
    return {name + suffix: write_records(folder / (name + suffix), records) for name, records in kinds.items()}


@dataclass
class _Line(Generic[R]):
    """A record and where it came from."""

    place: str
    record: R
    raw: JsonObject


class _Import:
    """One run of `import_files`."""

    def __init__(
        self, catalogue: Catalogue, skip_bad: bool, trust: bool, accept_changes: bool, progress: Progress | None
    ) -> None:
        self.report = ImportReport()
        self.total = 0
        self._catalogue = catalogue
        self._skip_bad = skip_bad
        self._trust = trust
        self._accept_changes = accept_changes
        self._progress = progress
        self._done = 0
        self._seen: set[bytes] = set()

    def servers(self, paths: Paths) -> None:
        for lines in self._batches(paths, Server):
            self._stored(lines, self._put_servers)

    def tools(self, paths: Paths) -> None:
        for lines in self._batches(paths, Tool):
            fresh = [line for line in lines if self._first(line.record.tool_id)]
            self.report.tools_repeated += len(lines) - len(fresh)
            self._stored(fresh, self._put_tools)

    def calls(self, paths: Paths) -> None:
        for lines in self._batches(paths, Call):
            self._stored(lines, self._put_calls)

    def trajectories(self, paths: Paths) -> None:
        for lines in self._batches(paths, Trajectory):
            self._stored(lines, self._put_trajectories)

    def _put_servers(self, lines: Sequence[_Line[Server]]) -> None:
        touched, _ = self._catalogue.merge([line.record for line in lines])
        self.report.servers += len(lines)
        self.report.servers_changed += touched

    def _put_tools(self, lines: Sequence[_Line[Tool]]) -> None:
        homes = {line.record.server_id: _home(line) for line in reversed(lines)}
        made, change = self._catalogue.merge(
            tools=[line.record for line in lines],
            missing_servers=list(homes.values()),
            trust=self._trust,
            accept_changes=self._accept_changes,
        )
        self.report.servers_made += made
        self.report.tools += len(lines)
        self.report.tools_added += len(change.added)
        self.report.tools_changed += len(change.changed)
        self.report.tools_unchanged += len(change.unchanged)

    def _put_calls(self, lines: Sequence[_Line[Call]]) -> None:
        left_out: list[str] = []
        self.report.calls_changed += self._catalogue.put_exemplars([line.record for line in lines], left_out)
        self.report.calls_left_out += len(left_out)
        self.report.calls += len(lines)

    def _put_trajectories(self, lines: Sequence[_Line[Trajectory]]) -> None:
        self.report.trajectories += self._catalogue.put_trajectories([line.record for line in lines])

    def _batches(self, paths: Paths, kind: type[R]) -> Iterator[list[_Line[R]]]:
        for path in paths:
            yield from batched(self._lines(path, kind), BATCH)

    def _lines(self, path: Path | str, kind: type[R]) -> Iterator[_Line[R]]:
        for number, raw in read_objects(path, on_bad=self._bad):
            place = f"{path}:{number}"
            try:
                record = parse_record(raw, kind, place)
            except BadInput as error:
                self._bad(error)
                continue
            yield _Line(place, record, raw)

    def _stored(self, lines: Sequence[_Line[R]], put: Callable[[Sequence[_Line[R]]], None]) -> None:
        try:
            put(lines)
        except BadInput:  # well-formed, but it cannot be stored: find out which lines
            for line in lines:
                try:
                    put([line])
                except BadInput as error:
                    self._bad(BadInput(f"{line.place}: {error}", error.hint))
        self._done += len(lines)
        if self._progress is not None:
            self._progress(self._done, max(self.total, self._done))

    def _bad(self, error: BadInput) -> None:
        if not self._skip_bad:
            raise error
        self.report.bad_count += 1
        if len(self.report.bad) < BAD_KEPT:
            self.report.bad.append(str(error))

    def _first(self, tool_id: str) -> bool:
        # Two lines of one tool would otherwise look like a tool that changed behind our back.
        digest = hashlib.blake2b(tool_id.encode(), digest_size=16).digest()
        fresh = digest not in self._seen
        self._seen.add(digest)
        return fresh


def _home(line: _Line[Tool]) -> Server:
    """A stand-in for the server of a tool that came without one: what can be told from the tool's own line."""
    server_id = line.record.server_id
    described = line.raw.get("server_description")
    return Server(
        server_id=server_id,
        name=server_id.rpartition("/")[2] or server_id,
        description=described if isinstance(described, str) else "",
        state=ServerState.UNAVAILABLE,
    )
