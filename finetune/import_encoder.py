"""PyTorch weights of an encoder that ``finetune.export_encoder`` wrote, to go on training from what ships.

    python -m toolscout.finetune.import_encoder ENCODER_FOLDER OUT

OUT becomes a sentence-transformers folder that pools by the mean. Its weights are the export's int8 values times their
scales, so they are not the ones that were exported: the first steps of training make up for it. The segment vectors are
inside the positions, as the graph has them. Needs the ``train`` extra.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.finetune.export_encoder import PARITY_TEXTS, measure_parity
from toolscout.finetune.model import encode, load_model
from toolscout.index.asset import MODEL, TOKENIZER, read_card

Floats = npt.NDArray[np.float32]

_LEAST = 0.98
_QKV = ("query", "key", "value")
_SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


def import_encoder(folder: Path, out: Path) -> float:
    """Write the encoder as a sentence-transformers model; returns the mean cosine of its vectors and the export's.

    Raises NotFound and StorageError for a folder that is no encoder (see ``index.asset``), BadInput for a graph that
    the export did not write.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel

    from toolscout.index.encoder import OnnxEncoder

    card = read_card(folder)
    weights, settings = read_graph(folder / MODEL)
    tokens, dim = weights["embeddings.word_embeddings.weight"].shape
    config = BertConfig(vocab_size=tokens, hidden_size=dim, type_vocab_size=1, **settings)
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
    bert = out / "bert"
    model.save_pretrained(str(bert))
    shutil.copyfile(folder / TOKENIZER, bert / TOKENIZER)
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": card.max_tokens, **_SPECIAL}
    (bert / "tokenizer_config.json").write_text(json.dumps(kind), "utf-8")
    whole = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(dim, "mean"), Normalize()])
    shutil.rmtree(bert)
    whole.save_pretrained(str(out), create_model_card=False)
    with OnnxEncoder(folder, prefixes=False) as encoder:
        exported = encoder.encode(list(PARITY_TEXTS))
    mean = measure_parity(encode(load_model(out, card.max_tokens), PARITY_TEXTS), exported).mean
    if mean < _LEAST:
        raise BadInput(f"The weights give other vectors than {folder}: mean cosine {mean:.4f}.")
    return mean


def read_graph(path: Path) -> tuple[dict[str, Floats], dict[str, Any]]:
    """Weights by their PyTorch names, float32, and what the graph says of the configuration."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    tables = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    attributes = {node.op_type: {a.name: a for a in node.attribute} for node in graph.node}
    try:
        heads = attributes["QAttention"]["num_heads"].i
        epsilon = attributes["LayerNormalization"]["epsilon"].f
        found = {name: values for name, values in tables.items() if name.endswith((".weight", ".bias"))}
        words = "embeddings.word_embeddings.weight"
        found[words] = tables[words + ".int8"].astype(np.float32) * tables[words + ".scale"]
        found["embeddings.position_embeddings.weight"] = tables["positions"]
        dim = found[words].shape[1]
        found["embeddings.token_type_embeddings.weight"] = np.zeros((1, dim), np.float32)
        layers = sum(name.endswith(".qkv_quantized") for name in tables)
        for i in range(layers):
            prefix = f"encoder.layer.{i}"
            packed = np.split(_matrix(tables, prefix + ".qkv"), 3, axis=1)
            biases = np.split(found.pop(prefix + ".qkv.bias"), 3)
            for part, matrix, bias in zip(_QKV, packed, biases, strict=True):
                found[f"{prefix}.attention.self.{part}.weight"] = matrix.T
                found[f"{prefix}.attention.self.{part}.bias"] = bias
            for part in ("attention.output", "intermediate", "output"):
                name = f"{prefix}.{part}.dense.weight"
                found[name] = _matrix(tables, name + ".t").T
        inner = len(found["encoder.layer.0.intermediate.dense.bias"])
    except KeyError as error:
        raise BadInput(f"{path} is no export of toolscout's: it lacks {error}.") from None
    settings = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": len(tables["positions"]),
        "layer_norm_eps": epsilon,
    }
    return {name: np.array(values, dtype=np.float32, order="C") for name, values in found.items()}, settings


def _matrix(tables: dict[str, npt.NDArray[Any]], name: str) -> Floats:
    """A matrix [in, out] that ONNX Runtime quantised, with a scale and a zero point a column or one for all."""
    values = tables[name + "_quantized"].astype(np.float32)
    zero = tables[name + "_zero_point"].astype(np.float32)
    return np.asarray((values - zero) * tables[name + "_scale"], dtype=np.float32)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description="PyTorch weights of an encoder that ships, from its int8 export.")
    parser.add_argument("folder", type=Path, help="encoder folder, such as index/encoders/NAME")
    parser.add_argument("out", type=Path, help="sentence-transformers folder to write")
    args = parser.parse_args(argv)
    print(json.dumps({"mean_cosine": round(import_encoder(args.folder, args.out), 5)}))


if __name__ == "__main__":
    main()
