"""What the export to int8 costs: the exported encoder against PyTorch's, over real tools and requests.

    python -m toolscout.finetune.check_export MODEL_FOLDER ASSET_FOLDER --tools T --calls dev.jsonl.gz fit.jsonl.gz

Prints one JSON object (cosines between both encoders' vectors, recall of each alone, the recall lost, the latter for
each file of requests by itself too), then fails if the export costs too much over all files together: three of three
hundred requests change places by chance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolscout.errors import BadInput
from toolscout.finetune.export_encoder import measure_parity
from toolscout.finetune.model import encode, load_model
from toolscout.finetune.pairs import Pool, read_calls, read_pool
from toolscout.finetune.recall import dense_recall
from toolscout.index.document import query_text
from toolscout.index.encoder import OnnxEncoder
from toolscout.records import Call

WATCHED = ("recall@1", "recall@5", "recall@10")


def check_export(
    model_folder: Path,
    asset: Path,
    tools: Sequence[Path],
    servers: Sequence[Path],
    calls: Sequence[Path],
) -> dict[str, Any]:
    """Compare both encoders over the whole pool; the asset's card says tokens and prefixes for both."""
    pool = read_pool(tools, servers)
    asked, files = _asked(calls, pool)
    queries, documents = [query_text(c.query) for c in asked], [pool.text(t) for t in pool.tools]
    with OnnxEncoder(asset, threads=os.cpu_count() or 1) as encoder:
        card = encoder.card
        exported = encoder.encode(queries, kind="query"), encoder.encode(documents)
    model = load_model(model_folder, card.max_tokens)
    reference = encode(model, queries, card.query_prefix), encode(model, documents, card.document_prefix)
    parity = measure_parity(np.concatenate(reference), np.concatenate(exported))

    def recalls(rows: list[int]) -> dict[str, Any]:
        some = [asked[i] for i in rows]
        both = {
            name: dense_recall(some, q[rows], list(pool.tools), d)
            for name, (q, d) in {"pytorch": reference, "exported": exported}.items()
        }
        before, after = both["pytorch"]["equivalent"], both["exported"]["equivalent"]
        return {"requests": len(rows), "lost": {key: round(before[key] - after[key], 4) for key in WATCHED}, **both}

    return {
        "texts": parity.texts,
        "mean_cosine": round(parity.mean, 5),
        "worst_cosine": round(parity.worst, 5),
        **recalls(list(range(len(asked)))),
        "by_file": {name: {k: v for k, v in recalls(rows).items() if k in ("requests", "lost")}
                    for name, rows in files.items()},
    }  # fmt: skip


def _asked(paths: Sequence[Path], pool: Pool) -> tuple[list[Call], dict[str, list[int]]]:
    """Requests with a right tool in the pool, each once, and which of them each file brought."""
    asked: dict[str, Call] = {}
    files: dict[str, list[int]] = {}
    for path in paths:
        mine = files.setdefault(str(path), [])
        for call in read_calls([path]):
            if call.id not in asked and any(tool_id in pool.tools for tool_id in call.relevant_ids()):
                mine.append(len(asked))
                asked[call.id] = call
    if not asked:
        raise BadInput("None of the requests has a right tool in the pool.", "Give the tools that they are for.")
    return list(asked.values()), {name: rows for name, rows in files.items() if rows}


def judge(found: dict[str, Any], min_cosine: float, max_loss: float) -> None:
    """Raises BadInput when the mean cosine is too low, or an equivalent recall falls by more than ``max_loss``."""
    if found["mean_cosine"] < min_cosine or max(found["lost"].values()) > max_loss:
        raise BadInput(
            f"The export differs from PyTorch: mean cosine {found['mean_cosine']} (wanted {min_cosine}), "
            f"recall lost {found['lost']}.",
            "Try the other quantisation options of export_encoder.",
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description="Compare an exported encoder with the model it was made from.")
    parser.add_argument("model_folder", type=Path)
    parser.add_argument("asset", type=Path)
    parser.add_argument("--tools", type=Path, nargs="+", required=True)
    parser.add_argument("--servers", type=Path, nargs="*", default=[])
    parser.add_argument("--calls", type=Path, nargs="+", required=True)
    parser.add_argument("--min-cosine", type=float, default=0.99)
    parser.add_argument("--max-loss", type=float, default=0.005)
    args = parser.parse_args(argv)
    found = check_export(args.model_folder, args.asset, args.tools, args.servers, args.calls)
    print(json.dumps(found, indent=2))
    try:
        judge(found, args.min_cosine, args.max_loss)
    except BadInput as error:
        sys.exit(error.sentence())


if __name__ == "__main__":
    main()
