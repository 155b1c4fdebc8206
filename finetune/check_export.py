"""What the export to int8 costs: the exported encoder against PyTorch's, over real tools and requests.

    python -m toolscout.finetune.check_export MODEL_FOLDER ASSET_FOLDER --tools tools.jsonl.gz --calls dev.jsonl.gz

Prints one JSON object (cosines between both encoders' vectors, recall of each alone, the recall lost), then fails if
the export costs too much.
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
from toolscout.finetune.pairs import read_calls, read_pool
from toolscout.finetune.recall import dense_recall
from toolscout.index.document import query_text
from toolscout.index.encoder import OnnxEncoder

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
    asked = [call for call in read_calls(calls) if call.gold]
    queries, documents = [query_text(c.query) for c in asked], [pool.text(t) for t in pool.tools]
    with OnnxEncoder(asset, threads=os.cpu_count() or 1) as encoder:
        card = encoder.card
        exported = encoder.encode(queries, kind="query"), encoder.encode(documents)
    model = load_model(model_folder, card.max_tokens)
    reference = encode(model, queries, card.query_prefix), encode(model, documents, card.document_prefix)
    parity = measure_parity(np.concatenate(reference), np.concatenate(exported))
    recalls = {
        name: dense_recall(asked, q, list(pool.tools), d)
        for name, (q, d) in {"pytorch": reference, "exported": exported}.items()
    }
    before, after = recalls["pytorch"]["equivalent"], recalls["exported"]["equivalent"]
    return {
        "texts": parity.texts,
        "mean_cosine": round(parity.mean, 5),
        "worst_cosine": round(parity.worst, 5),
        "lost": {key: round(before[key] - after[key], 4) for key in WATCHED},
        **recalls,
    }


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
