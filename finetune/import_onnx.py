"""A BERT encoder's PyTorch weights from a float32 ONNX export of it, for bases that are only to be had as ONNX.

    python -m toolscout.finetune.import_onnx FOLDER OUT

FOLDER holds config.json, the tokenizer and model.onnx (or onnx/model.onnx) with one output of token states, as Optimum
exports it: named vectors and tables, and matrices that only their nodes name. OUT becomes a sentence-transformers
folder that pools by the mean. Needs the ``train`` extra.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, NotFound

_TOLERANCE = 1e-3
_TEXTS = ("What's the weather in Lisbon tomorrow?", "create_issue", "Delete the row with id 42 from table customers.")


def import_onnx(folder: Path, out: Path) -> None:
    """Write the folder as a sentence-transformers model, checked against the ONNX graph's own output.

    Raises NotFound without a graph, BadInput for one that is no plain BERT or gives other numbers.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel

    graph = next((p for p in (folder / "model.onnx", folder / "onnx" / "model.onnx") if p.is_file()), None)
    if graph is None or not (folder / "config.json").is_file():
        raise NotFound(f"There is no model.onnx with config.json in {folder}.", "Give the folder of an ONNX export.")
    model = BertModel(BertConfig.from_pretrained(str(folder)), add_pooling_layer=False).eval()
    weights = {name: torch.from_numpy(values) for name, values in read_weights(graph).items()}
    lacking = sorted(set(model.state_dict()) - set(weights))
    if lacking:
        raise BadInput(f"{graph} lacks {lacking[0]} and {len(lacking) - 1} more.", "Only plain BERT exports are read.")
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    bert = out / "bert"
    model.save_pretrained(str(bert))
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, bert / name)
    modules = [Transformer(str(bert)), Pooling(model.config.hidden_size, "mean"), Normalize()]
    whole = SentenceTransformer(modules=modules)
    shutil.rmtree(bert)
    whole.save_pretrained(str(out), create_model_card=False)
    worst = difference(graph, out, model)
    if worst > _TOLERANCE:
        raise BadInput(f"The weights give other numbers than {graph}: {worst:.4f} apart.")


def read_weights(graph: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Weights by their PyTorch names. A linear layer's matrix is named by its node, and stored transposed."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(graph)).graph
    tables = {i.name: i for i in model.initializer}
    found = {name: numpy_helper.to_array(t).copy() for name, t in tables.items() if name.endswith((".weight", ".bias"))}
    for node in model.node:
        if node.op_type == "MatMul" and node.input[1] in tables:
            name = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            found[name + ".weight"] = numpy_helper.to_array(tables[node.input[1]]).T.copy()
    return found


def difference(graph: Path, folder: Path, model: object) -> float:
    """Largest difference of the token states that graph and model give for a few texts."""
    import onnxruntime as ort
    import torch
    from tokenizers import Tokenizer

    session = ort.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    worst = 0.0
    for text in _TEXTS:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = session.run(None, {k: v for k, v in given.items() if k in wanted})[0]
        with torch.no_grad():
            ours = model(input_ids=torch.from_numpy(ids)).last_hidden_state.numpy()  # type: ignore[operator]
        worst = max(worst, float(np.abs(states - ours).max()))
    return worst


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description="PyTorch weights of a BERT encoder from its ONNX export.")
    parser.add_argument("folder", type=Path, help="folder with config.json, tokenizer.json and model.onnx")
    parser.add_argument("out", type=Path, help="sentence-transformers folder to write")
    args = parser.parse_args(argv)
    import_onnx(args.folder, args.out)


if __name__ == "__main__":
    main()
