"""``toolscout eval pack``: see docs/PACK.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def pack(
    requests: Annotated[
        Path | None, typer.Option(help="Requests to ask.", show_default="eval/data/pack_requests.jsonl")
    ] = None,
    file: Annotated[Path | None, typer.Option("--pack", help="The pack.", show_default="the one in use")] = None,
    home: Annotated[
        Path | None, typer.Option(help="A home whose servers count as installed.", show_default=False)
    ] = None,
    calls: Annotated[
        Path | None,
        typer.Option(help="Requests with gold tools: recall of the pack and the home's index.", show_default=False),
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Ask the built-in catalog what people ask: by itself, and below the servers of a home.

    With --calls only recall is measured: of the pack, and of the home's index of the same tools with their texts.
    """
    from toolscout.errors import BadInput, NotFound
    from toolscout.eval.cli import _say
    from toolscout.eval.pack.measure import measure_pack, read_rows
    from toolscout.eval.pack.recall import compare_recall
    from toolscout.eval.provenance import write_result
    from toolscout.index.encoder import make_encoder
    from toolscout.index.pack.current import find_pack
    from toolscout.index.pack.search import PackIndex
    from toolscout.index.search import SearchIndex
    from toolscout.jsonl import read_records
    from toolscout.records import Call
    from toolscout.settings import load_settings

    settings = load_settings()
    if calls and (requests or not home):
        raise BadInput("--calls takes no --requests." if requests else "--calls needs --home.")
    rows = [] if calls else read_rows(requests or Path(__file__).parents[1] / "data" / "pack_requests.jsonl")
    encoder = make_encoder(settings)
    found = find_pack(settings) if file is None else None
    path = file or (found.path if found is not None else None)
    if path is None:
        raise NotFound("There is no pack to measure.", "Name one with --pack.")
    own = SearchIndex.open(settings.model_copy(update={"home": home}).index_dir, encoder) if home else None
    box = PackIndex.open_pack(path, encoder)
    if calls is not None and own is not None:
        result: dict[str, Any] = compare_recall({"pack": box, "texts": own}, list(read_records(calls, Call)))
    else:
        result = measure_pack(box, own, rows, _say(quiet))
    if json_out is not None:
        write_result(json_out, result)
    if not quiet:
        print(json.dumps(result, indent=2))
