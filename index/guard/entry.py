"""The scanner where tools enter the catalogue: what is found is kept in the record, and grave findings hold it back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolscout.index.guard.finding import Finding, held
from toolscout.index.guard.scan import scan_server, scan_tool
from toolscout.records import JsonObject, Review, Server, Tool


class Examination:
    """Scans some tools of some servers; each server's own texts are scanned once.

    Args:
        tools: the tools that enter together: what one of them may say of another depends on whose they are.
        servers: their servers as far as they are known, by id.
        there: names of tools that the servers have beside them, by server id.
    """

    def __init__(
        self, tools: Iterable[Tool], servers: Mapping[str, Server], there: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._servers = servers
        self._names: dict[str, list[str]] = {server_id: list(names) for server_id, names in (there or {}).items()}
        for tool in tools:
            self._names.setdefault(tool.server_id, []).append(tool.name)
        self._of_server: dict[str, list[Finding]] = {}

    def findings(self, tool: Tool) -> list[JsonObject]:
        """What is found of one tool and of its server, as it is kept in the record."""
        server, names = self._servers.get(tool.server_id), self._names.get(tool.server_id, [])
        found = scan_tool(tool, server, siblings=names)
        if server is not None:
            if server.server_id not in self._of_server:
                self._of_server[server.server_id] = scan_server(server, names)
            found = found + self._of_server[server.server_id]
        return [finding.to_json() for finding in found]


def examined(server: Server, tools: Sequence[Tool]) -> Iterator[Tool]:
    """A server's tools with what is found of them, for files that are written without a catalogue: who is suspicious
    is pending there."""
    examination = Examination(tools, {server.server_id: server})
    for tool in tools:
        found = examination.findings(tool)
        if not found:
            yield tool
            continue
        waits = tool.review is Review.APPROVED and held(found)
        yield tool.model_copy(update={"findings": found} | ({"review": Review.PENDING} if waits else {}))
