"""What ``synth`` commands open: files of tools, models with their store of answers, the server's rules of grounding.

The rooms synth and server stand side by side and may not import each other; the command line stands above both.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.errors import BadInput

if TYPE_CHECKING:
    from toolscout.records import JsonObject, Server, Tool
    from toolscout.server.calling.grounding import Grounds
    from toolscout.settings import Settings
    from toolscout.synth.answer_store import AnswerStore
    from toolscout.synth.bench import Bench
    from toolscout.synth.settings import SynthSettings
    from toolscout.synth.stations import Machines
    from toolscout.synth.writer import Endpoint, Price

_SPREAD = 64
_PLACES = ("seen", "unseen_tool", "unseen_server")


def read_tools(
    tools: Iterable[Path], servers: Iterable[Path]
) -> tuple[dict[str, Tool], dict[str, Server], dict[str, str]]:
    """(tools, servers, the splits that rows of tools state), by id; of two records with one id the first counts.

    Raises BadInput when the files hold no tool.
    """
    from toolscout.jsonl import parse_record, read_objects, read_records
    from toolscout.records import Server, Tool

    found: dict[str, Tool] = {}
    stated: dict[str, str] = {}
    for path in tools:
        for number, row in read_objects(path):
            tool = parse_record(row, Tool, f"{path}:{number}")
            if tool.tool_id not in found:
                found[tool.tool_id] = tool
                if row.get("split") in _PLACES:
                    stated[tool.tool_id] = str(row["split"])
    if not found:
        raise BadInput("The tools files hold no tools.", "Give at least one file of tools with --tools.")
    known: dict[str, Server] = {}
    for path in servers:
        for server in read_records(path, Server):
            known.setdefault(server.server_id, server)
    return found, known, stated


@asynccontextmanager
async def open_bench(
    tools: dict[str, Tool],
    servers: dict[str, Server],
    settings: SynthSettings,
    folder: Path,
    *,
    cache: Path | None = None,
    encoder: str | None = None,
    encodes: bool = True,
    asks: bool = True,
    ray: str | None = None,
) -> AsyncIterator[Bench]:
    """The bench of one run, closed at its end.

    :param encoder: as ``TOOLSCOUT_ENCODER``, which it overrides.
    :param encodes: whether an encoder is needed.
    :param asks: whether models are needed.
    :param ray: address of a Ray cluster whose machines ask the models (`toolscout.synth.stations.Machines`).
    :raises BadInput: no endpoint is named, or the encoder is none.
    """
    from toolscout.index.encoder import make_encoder
    from toolscout.settings import load_settings
    from toolscout.synth.bench import Bench
    from toolscout.synth.writer import Purse, Writer

    general = load_settings()
    bench = Bench(tools, servers, settings, ungrounded=ungrounded)
    if encodes:
        bench.encoder = make_encoder(general.model_copy(update={"encoder": encoder}) if encoder else general)
    if not asks:
        yield bench
        return
    machines = _machines(ray) if ray else None
    asked = _endpoints(settings, general, machines)
    with machines or nullcontext():  # joined when all that was given is known to be usable
        if machines is not None:
            # Each machine has its own bound: here only as many inputs are held as a large cluster may want.
            bench.at_once = settings.concurrency * _SPREAD
        gate = asyncio.Semaphore(bench.inputs_at_once)
        store = _store(folder, cache)
        try:
            purse = Purse(settings.max_cost, spent=store.price())
            writers = [
                Writer(e, store, purse, price=p, max_tokens=settings.max_tokens, repairs=settings.repairs, gate=gate)
                for e, p in asked
            ]
            bench.first, bench.second = writers[0], writers[1] if len(writers) > 1 else None
            yield bench
        finally:
            for one, _ in asked:
                await one.close()
            store.close()


def _machines(address: str) -> Machines:
    from toolscout.commands.output import note
    from toolscout.synth.stations import Machines

    return Machines(address, note)


def _endpoints(settings: SynthSettings, general: Settings, machines: Machines | None) -> list[tuple[Endpoint, Price]]:
    """The model that writes, and where another one is named, the one that judges. Raises BadInput without any."""
    from toolscout.synth.chat import ChatEndpoint
    from toolscout.synth.writer import Price

    def endpoint(url: str, model: str, key: str) -> Endpoint:
        options: dict[str, Any] = {
            "model": model,
            "key": key,
            "timeout": settings.timeout,
            "retries": settings.retries,
            "longest_pause": settings.longest_pause,
            "connections": settings.concurrency,
        }
        if machines is None:
            return ChatEndpoint(url, **options)
        from toolscout.synth.stations import StationEndpoint

        return StationEndpoint(machines, url, at_once=settings.concurrency, **options)

    url, model, key = settings.model_url, settings.model, settings.model_key
    if not url:
        # The installation's own model: its key goes to no other address.
        url, model, key = general.model_url, model or general.model, key or general.model_key
    if not url:
        raise BadInput(
            "No model is named to write with.", "Give --endpoint http://host:8000/v1, or set TOOLSCOUT_SYNTH_MODEL_URL."
        )
    prices = (settings.price_in, settings.price_out, settings.second_price_in, settings.second_price_out)
    if settings.max_cost and not any(prices):
        raise BadInput("A cost ceiling needs prices.", "Give --price-in and --price-out, for a million tokens.")
    asked = [(endpoint(url, model, key), Price(settings.price_in, settings.price_out))]
    if settings.second_url or settings.second_model:
        second_key = settings.second_key or ("" if settings.second_url else key)
        second = endpoint(settings.second_url or url, settings.second_model, second_key)
        asked.append((second, Price(settings.second_price_in, settings.second_price_out)))
    return asked


def _store(folder: Path, cache: Path | None) -> AnswerStore:
    from toolscout.synth.answer_store import AnswerStore

    # Answers may be shared; what was spent is the folder's, whatever is shared in which of its runs.
    own = folder / "answers.db"
    return AnswerStore(cache or own, own)


_UNITS = (
    "second|minute|hour|day|week|month|year|kilo|metre|meter|mile|dozen|hundred|thousand|million|half|quarter|mega|giga"
)
_ARTICLE = re.compile(rf"\b(?:an?|single|once)\b(?!\s+(?:{_UNITS}))", re.IGNORECASE)
"""A one that counts nothing: "an hour" is sixty minutes, "a company" no number."""


def ungrounded(tool: Tool, text: str, arguments: JsonObject) -> list[str]:
    """Names of the arguments whose values the text does not give, by the rules that `suggest_call` keeps to."""
    from toolscout.schema import simplify_arguments
    from toolscout.server.calling.grounding import Grounds, echoes, idle, invented

    schema = simplify_arguments(tool.input_schema)
    grounds = Grounds(text)
    # Nobody who says "a company" has given the number 1, let alone a hundred of them.
    numbers = Grounds(_ARTICLE.sub(" ", text))
    found = []
    for name, value in arguments.items():
        node = schema["properties"].get(name, {})
        # A required argument has to have a value, if need be its default.
        bare = {k: v for k, v in node.items() if k != "default"} if name in schema["required"] else node
        made_up = invented(name, node, value, grounds) or echoes(name, node, value, grounds)
        unasked = name not in schema["required"] and _unasked(node, value, grounds, numbers)
        if made_up or unasked or idle(bare, value, grounds) or _mostly_untraced(value, grounds):
            found.append(name)
    return found


def _unasked(node: JsonObject, value: object, grounds: Grounds, numbers: Grounds) -> bool:
    """Of an optional text or number, whether nothing in the text asks for it. Stricter than what `suggest_call` keeps
    to: that a description names a value as an example is no reason for an instruction to mean it."""
    if "enum" in node or any("enum" in way for way in node.get("anyOf", ())):
        return False
    if isinstance(value, str):
        return not (grounds.touches(value) or grounds.dates(value) or value in ("true", "false"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        bounds = (node.get("minimum"), node.get("maximum"))
        return not (grounds.touches(value) or numbers.derives(value) or value in bounds)
    return False


def _mostly_untraced(value: object, grounds: Grounds) -> bool:
    """True of an object, or a list of objects, of whose texts and numbers fewer than half show in the text."""
    if not (isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value))):
        return False
    leaves: list[str | int | float] = []
    stack: list[Any] = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            stack += top.values()
        elif isinstance(top, list):
            stack += top
        elif isinstance(top, str | int | float) and not isinstance(top, bool) and top != "":
            leaves.append(top)
    return 2 * sum(grounds.touches(leaf) for leaf in leaves) < len(leaves)
