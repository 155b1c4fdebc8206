"""The face on disk: the engine's own answers to a client's opening questions, replayed by the gate at the next start.

Recorded, not written by hand: whatever the installed SDK answers for each protocol version is what the gate says.
The record is dropped when Toolscout, the SDK or FastMCP is another one than the one that made it. Standard modules
only, up to `record`: reading happens before anything else is imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout import __version__

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_FILE = "face.json"
_PACKAGES = ("toolscout", "mcp", "mcp_types", "fastmcp")


def load(home: Path) -> dict[str, dict[str, Any]]:
    """Recorded answers by method and protocol version; empty when there are none that still hold."""
    try:
        face = json.loads((home / _FILE).read_bytes())
        answers = face["answers"] if face["key"] == _key() else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return answers if isinstance(answers, dict) else {}


def outdated(home: Path) -> bool:
    """Whether there is a record that holds no more."""
    return (home / _FILE).exists() and not load(home)


def save(home: Path, answers: dict[str, dict[str, Any]]) -> None:
    """Keep ``answers`` for the next start; atomic, and silent where the home folder cannot be written."""
    from toolscout.errors import StorageError
    from toolscout.files import replace_file

    with contextlib.suppress(StorageError):
        replace_file(home / _FILE, json.dumps({"key": _key(), "answers": answers}))


def _key() -> list[str]:
    """Changes when one of the packages that shape the answers is installed anew."""
    parts = [__version__]
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin) if spec and spec.origin else None
        parts.append(f"{name}:{origin.stat().st_mtime_ns if origin and origin.exists() else 0}")
    contract = Path(__file__).with_name("contract.py")
    parts.append(f"contract:{contract.stat().st_mtime_ns}")
    return parts


async def record(server: Server[Any]) -> dict[str, dict[str, Any]]:
    """Ask ``server`` its opening questions at every protocol version that it speaks, over in-memory streams."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

    answers: dict[str, dict[str, Any]] = {"initialize": {}, "server/discover": {}, "tools/list": {}, "ping": {}}
    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        hello = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "face", "version": __version__},
        }
        questions: list[tuple[str, dict[str, Any]]] = [("initialize", hello), ("tools/list", {}), ("ping", {})]
        for (method, _), result in zip(questions, await _ask(server, questions), strict=True):
            answers[method][version] = result
    for version in MODERN_PROTOCOL_VERSIONS:
        envelope = {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "face", "version": __version__},
            }
        }
        questions = [("server/discover", envelope), ("tools/list", envelope)]
        for (method, _), result in zip(questions, await _ask(server, questions), strict=True):
            answers[method][version] = result
    return {
        method: {version: result for version, result in by_version.items() if result is not None}
        for method, by_version in answers.items()
    }


async def _ask(server: Server[Any], questions: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Results of the questions on one fresh connection; None where the server answered with an error."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCRequest

    to_server, server_reads = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    server_writes, from_server = anyio.create_memory_object_stream[SessionMessage](8)
    results: list[Any] = []
    async with anyio.create_task_group() as tasks, to_server, from_server:
        tasks.start_soon(server.run, server_reads, server_writes, server.create_initialization_options())
        for number, (method, params) in enumerate(questions):
            request = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
            await to_server.send(SessionMessage(request))
            while True:
                message = (await from_server.receive()).message.model_dump(by_alias=True, exclude_unset=True)
                if message.get("id") == number:
                    break
            results.append(message.get("result"))
        tasks.cancel_scope.cancel()
    return results
