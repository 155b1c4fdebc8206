"""Structured requests for measured rows: what a model would send as ``{server, tool}`` instead of the user's words.

MCP-Zero (arXiv 2506.01056) lets the model name the kind of server and the kind of operation it needs. Our rows hold
what people typed, so somebody has to write that form, from the request alone: neither the gold tools nor the pool's
names are shown.

    python -m toolscout.eval.retrieval.structured calls.jsonl.gz --model qwen2.5-coder-0.5b --out requests.jsonl

asks an installed model (or ``--model-url``) with one fixed prompt, greedily, under a JSON schema, and goes on where an
interrupted run stopped. The file has one row for each request:

    {"id": ROW, "requests": [{"server": "kind of server", "tool": "kind of operation"}, ...], "by": "who wrote it"}
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from toolscout.errors import BadInput, ToolscoutError
from toolscout.eval.rows import Say, read_calls, silent
from toolscout.jsonl import read_records
from toolscout.records import Call, JsonObject, Record

if TYPE_CHECKING:
    from toolscout.server.backends import Backend

MAX_SERVER = 60
MAX_TOOL = 120
MAX_REQUEST = 1500
"""Characters of a request that the model is shown."""

_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "server": {"type": "string", "minLength": 2, "maxLength": MAX_SERVER},
        "tool": {"type": "string", "minLength": 4, "maxLength": MAX_TOOL},
    },
    "required": ["server", "tool"],
    "additionalProperties": False,
}

_SYSTEM = (
    "You look up software tools for a user's task. Answer with a JSON object in English: 'server' is the product, "
    "platform or kind of service that could do it, in one to four words; 'tool' is the operation on it, a verb and "
    "its object in three to ten words, without the task's own names, numbers, dates and addresses."
)

# Written for this prompt; no row of any measured file is among them.
_EXAMPLES: Sequence[tuple[str, str, str]] = (
    ("Who has booked the blue meeting room on Friday after lunch?", "Room booking", "list bookings of a meeting room"),
    ("ping #ops on Slack that the 14:00 deploy slipped by an hour", "Slack", "post a message to a channel"),
    ("Wie viele Dosen Katzenfutter haben wir noch im Lager?", "Inventory management", "get stock level of a product"),
)


class StructuredRow(Record):
    """One row of the file: the structured form of the request ``id``."""

    class Request(Record):
        """A kind of server and a kind of operation."""

        server: str = ""
        tool: str = Field(min_length=1)

    id: str
    requests: list[Request] = Field(min_length=1)
    by: str = ""


def read_structured(path: Path, calls: Sequence[Call]) -> dict[str, StructuredRow]:
    """The structured form of each row by id. Rows of the file that are not measured are passed over.

    Raises BadInput if an id occurs twice or a measured row has no structured form.
    """
    found: dict[str, StructuredRow] = {}
    for row in read_records(path, StructuredRow):
        if row.id in found:
            raise BadInput(f"The row id {row.id!r} occurs twice in {path.name}.", "Row ids must be unique.")
        found[row.id] = row
    missing = [call.id for call in calls if call.id not in found]
    if missing:
        raise BadInput(
            f"{len(missing)} of {len(calls)} rows have no structured form in {path.name}, the first is {missing[0]!r}.",
            "Write them: python -m toolscout.eval.retrieval.structured --help",
        )
    return {call.id: found[call.id] for call in calls}


def messages(query: str) -> list[dict[str, str]]:
    """The fixed prompt for one request."""
    chat = [{"role": "system", "content": _SYSTEM}]
    for request, server, tool in _EXAMPLES:
        chat.append({"role": "user", "content": request})
        chat.append({"role": "assistant", "content": json.dumps({"server": server, "tool": tool})})
    return [*chat, {"role": "user", "content": query[:MAX_REQUEST]}]


def rows_to_write(calls: Sequence[Call], out: Path) -> list[Call]:
    """The calls that ``out`` lacks; its folder is made."""
    done = {row.id for row in read_records(out, StructuredRow)} if out.exists() else set()
    out.parent.mkdir(parents=True, exist_ok=True)
    return [call for call in calls if call.id not in done]


async def write_structured(backend: Backend, calls: Sequence[Call], out: Path, say: Say = silent) -> int:
    """Append the structured form of every call that ``out`` lacks; returns how many were written.

    A call without an answer that can be read gets the plain query as its ``tool``, so that no row is lost; ``by``
    says so.
    """
    todo = rows_to_write(calls, out)
    with out.open("a", encoding="utf-8") as stream:
        for number, call in enumerate(todo, start=1):
            answer = await backend.generate(messages(call.query), schema=_SCHEMA, max_tokens=96)
            request = _request(answer.text)
            by = backend.name if request else f"{backend.name}: unreadable, the plain query"
            row = {"id": call.id, "requests": [request or {"server": "", "tool": call.query}], "by": by}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            stream.flush()
            if number % 20 == 0:
                say(f"wrote {number} of {len(todo)}")
    return len(todo)


def _request(text: str) -> Mapping[str, str] | None:
    try:
        value = json.loads(text)
        server, tool = str(value["server"]).strip(), str(value["tool"]).strip()
    except (ValueError, KeyError, TypeError):
        return None
    return {"server": server[:MAX_SERVER], "tool": tool[:MAX_TOOL]} if tool else None


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of this script."""
    from toolscout.server.backends import make_backend
    from toolscout.settings import Settings

    parser = argparse.ArgumentParser(description="Write requests in structured form with a language model.")
    parser.add_argument("calls", type=Path, nargs="+", help="requests (.jsonl, .jsonl.gz); only id and query are read")
    parser.add_argument("--model", default="", help="a name of `toolscout model list`, or the endpoint's")
    parser.add_argument("--model-url", default="", help="OpenAI-compatible endpoint instead of a local model")
    parser.add_argument("--out", type=Path, required=True, help="file to write; rows that it has are kept")
    args = parser.parse_args(argv)
    named = {"model": args.model, "model_url": args.model_url}
    settings = Settings().model_copy(update={name: value for name, value in named.items() if value})

    async def run() -> int:
        backend = make_backend(settings)
        if backend is None:
            raise BadInput("There is no language model here.", "Fetch one: toolscout model pull qwen2.5-coder-0.5b")
        try:
            return await write_structured(
                backend, read_calls(args.calls), args.out, lambda line: print(line, file=sys.stderr)
            )
        finally:
            await backend.close()

    try:
        written = asyncio.run(run())
    except ToolscoutError as error:
        print(error.sentence(), file=sys.stderr)
        return error.exit_code
    print(f"{written} rows written to {args.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
