"""Mark what an upstream asks the person behind a call as its own question, not Toolscout's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolscout.errors import UpstreamError
from toolscout.records import JsonObject
from toolscout.server.telling.plain import plain

OURS = "toolscout"
"""How the names of Toolscout's own questions begin (`policy.approval.KEY`, `install.KEY`)."""


def named(server_id: str, result: JsonObject) -> JsonObject:
    """Put the server's name before each question of an ``input_required`` result.

    Raises:
        UpstreamError: a question goes by the name of one of Toolscout's, whose answer would count as one to that.
    """
    asked = result.get("inputRequests")
    if not isinstance(asked, Mapping):
        return result
    if any(str(key).startswith(OURS) for key in asked):
        raise UpstreamError(
            f"'{server_id}' asks under a name that only Toolscout's own questions have. Nobody was asked.",
            hint="Do not trust this server.",
        )
    return {**result, "inputRequests": {key: _named(server_id, one) for key, one in asked.items()}}


def _named(server_id: str, asked: Any) -> Any:
    params = asked.get("params") if isinstance(asked, Mapping) else None
    if not isinstance(params, Mapping) or not isinstance(message := params.get("message"), str):
        return asked
    said = f"The MCP server '{plain(server_id)}' asks this, not Toolscout:\n{plain(message, lines=True)}"
    return {**asked, "params": {**params, "message": said}}
