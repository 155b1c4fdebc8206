"""Export a BERT-like sentence encoder from PyTorch weights to one versioned asset folder that ONNX Runtime serves.

    python -m toolscout.finetune.export_encoder MODEL_FOLDER index/encoders/NAME --name NAME --source URL

The graph takes ``input_ids`` and ``attention_mask`` (int64, [batch, tokens]) and gives ``embedding`` (float32,
[batch, dim]): mean pooling over the mask and L2 normalisation are inside, so that no reader can do them differently.

Weights become int8: matrices of the transformer by ONNX Runtime's dynamic quantisation, the token embedding table
with one scale a row. Activations are quantised as they come. Weights of 8 bits can make a sum of two products overflow
on x86 processors without VNNI, which then saturate it: the encoder's card says how little that costs;
``--reduced-range`` keeps to 7 bits, which costs more on all. Needs the ``train`` extra.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, NotFound
from toolscout.index.asset import EncoderCard, write_card

Floats = npt.NDArray[np.float32]

LICENCE_FILE = Path("/usr/share/common-licenses/Apache-2.0")

PARITY_TEXTS = (
    "What's the weather in Lisbon tomorrow?",
    "list all open pull requests of the repository",
    "Convert 250 euros to Japanese yen at today's rate.",
    "create_issue",
    "get user billing info. Returns the name, e-mail and street address on file. userId, includeHistory. Billing API",
    "Search the Starknet chain for the native balances of an address on mainnet or Sepolia.",
    "Wie viele offene Tickets hat das Team im Juli geschlossen?",
    "東京の明日の天気を教えてください",
    "帮我把这个文件转换成 PDF",
    "Résume les derniers messages du canal #général.",
    "Delete the row with id 42 from table customers; ask before you do.",
    "Plot a candlestick chart of AAPL for the last six months with a 20 day moving average.",
    "a",
    "Render a Mermaid diagram to SVG. Args: source: the diagram text. theme: default, dark or forest. "
    "Returns the path of the file that was written, or an error message when the diagram cannot be parsed.",
)
"""Texts of the kinds the encoder meets, for the parity check when no other texts are given."""


@dataclass(frozen=True)
class Parity:
    """How close the exported model's embeddings are to PyTorch's: cosines over the same texts."""

    texts: int
    mean: float
    worst: float


def build_module(model: Any) -> Any:
    """Wrap a transformers model: (input_ids, attention_mask) -> mean-pooled, L2-normalised embedding."""
    import torch

    class Pooled(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(states.dtype)
            mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, p=2.0, dim=1)

    return Pooled().eval()


class BertGraph:
    """Writes a BERT encoder as an ONNX graph, weight by weight, with one fused node for each attention block.

    An exporter's trace of the same model has five times the nodes, and a short query is all per-node overhead.
    """

    def __init__(self, weights: dict[str, Floats], *, layers: int, heads: int, epsilon: float) -> None:
        self.weights = weights
        self.layers, self.heads, self.epsilon = layers, heads, epsilon
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Append a node, return its output's name."""
        from onnx import helper

        name = f"{op}_{len(self.nodes)}"
        domain = "com.microsoft" if op in {"Attention", "BiasGelu"} else ""
        self.nodes.append(helper.make_node(op, inputs, [name], name=name + "_node", domain=domain, **attributes))
        return name

    def constant(self, name: str, values: npt.NDArray[Any]) -> str:
        """Add an initialiser, return its name."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def weight(self, name: str) -> str:
        """A vector or table of the model as it is."""
        return self.constant(name, self.weights[name])

    def matrix(self, name: str) -> str:
        """A linear layer's weight, transposed to [in, out]."""
        return self.constant(name + ".t", self.weights[name].T)

    def add_and_norm(self, states: str, skip: str, bias: str, norm: str) -> str:
        """LayerNorm(states + bias + skip), in three nodes: ONNX Runtime's one node for it takes four times as long."""
        total = self.node("Add", [self.node("Add", [states, self.weight(bias)]), skip])
        return self.norm(total, norm)

    def norm(self, states: str, name: str) -> str:
        """LayerNorm with the weights of that name."""
        inputs = [states, self.weight(name + ".weight"), self.weight(name + ".bias")]
        return self.node("LayerNormalization", inputs, axis=-1, epsilon=self.epsilon)

    def layer(self, states: str, mask: str, prefix: str) -> str:
        """One transformer block."""
        parts = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
        packed = np.concatenate([self.weights[p + ".weight"].T for p in parts], axis=1)
        biases = np.concatenate([self.weights[p + ".bias"] for p in parts])
        attention = self.node(
            "Attention",
            [states, self.constant(prefix + ".qkv", packed), self.constant(prefix + ".qkv.bias", biases), mask],
            num_heads=self.heads,
        )
        output = prefix + ".attention.output"
        mixed = self.node("MatMul", [attention, self.matrix(output + ".dense.weight")])
        states = self.add_and_norm(mixed, states, output + ".dense.bias", output + ".LayerNorm")
        inner = self.node("MatMul", [states, self.matrix(prefix + ".intermediate.dense.weight")])
        inner = self.node("BiasGelu", [inner, self.weight(prefix + ".intermediate.dense.bias")])
        outer = self.node("MatMul", [inner, self.matrix(prefix + ".output.dense.weight")])
        return self.add_and_norm(outer, states, prefix + ".output.dense.bias", prefix + ".output.LayerNorm")

    def embeddings(self) -> str:
        """Sum of word, position and (first) segment embeddings, normalised."""
        words = self.node("Gather", [self.weight("embeddings.word_embeddings.weight"), "input_ids"])
        shape = self.node("Shape", ["input_ids"])
        length = self.node("Gather", [shape, self.constant("one", np.array([1], np.int64))])
        zero, axis = self.constant("zero", np.array([0], np.int64)), self.constant("axis0", np.array([0], np.int64))
        segment = self.weights["embeddings.token_type_embeddings.weight"][0]
        table = self.constant("positions", self.weights["embeddings.position_embeddings.weight"] + segment)
        positions = self.node("Slice", [table, zero, length, axis])
        return self.norm(self.node("Add", [words, positions]), "embeddings.LayerNorm")

    def pool(self, states: str) -> str:
        """Mean over the tokens that the mask keeps, L2-normalised."""
        last = self.constant("last", np.array([-1], np.int64))
        middle = self.constant("middle", np.array([1], np.int64))
        mask = self.node("Unsqueeze", [self.node("Cast", ["attention_mask"], to=1), last])
        total = self.node("ReduceSum", [self.node("Mul", [states, mask]), middle], keepdims=0)
        # The mean's divisor is the same for all entries of a row: normalising makes it vanish.
        return self.node("LpNormalization", [total], axis=-1, p=2)

    def build(self) -> Any:
        """The whole model as an ONNX ModelProto."""
        from onnx import TensorProto, helper

        states = self.embeddings()
        mask = self.node("Cast", ["attention_mask"], to=TensorProto.INT32)
        for i in range(self.layers):
            states = self.layer(states, mask, f"encoder.layer.{i}")
        pooled = self.pool(states)
        self.nodes.append(helper.make_node("Identity", [pooled], ["embedding"]))
        dim = self.weights["embeddings.word_embeddings.weight"].shape[1]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [
                helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
                helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "tokens"]),
            ],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", dim])],
            self.constants,
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def export_graph(model: Any, path: Path) -> None:
    """Write a transformers BertModel as a float32 ONNX graph. Raises BadInput for another architecture."""
    import onnx

    config = model.config
    if config.model_type != "bert" or config.hidden_act != "gelu":
        raise BadInput(
            f"This exports BERT encoders with GELU; the model is {config.model_type} with {config.hidden_act}.",
            "Choose a BERT-like sentence encoder such as all-MiniLM-L6-v2, gte-small or bge-small.",
        )
    weights = {name: value.detach().numpy().astype(np.float32) for name, value in model.state_dict().items()}
    graph = BertGraph(
        weights,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        epsilon=config.layer_norm_eps,
    )
    onnx.save(graph.build(), str(path))


def quantise_embeddings(path: Path, out: Path) -> None:
    """Store every large lookup table as int8 with one scale a row: a quarter of the size, almost no loss."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(path))
    graph = model.graph
    tables = {i.name: i for i in graph.initializer}
    nodes = []
    for node in graph.node:
        table = tables.get(node.input[0]) if node.op_type == "Gather" else None
        values = numpy_helper.to_array(table) if table is not None else None
        if table is None or values is None or values.ndim != 2 or values.dtype != np.float32 or values.shape[0] < 4096:
            nodes.append(node)
            continue
        scale = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-12) / 127.0
        rows = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
        base = table.name
        graph.initializer.remove(table)
        graph.initializer.append(numpy_helper.from_array(rows, base + ".int8"))
        graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), base + ".scale"))
        ids, result = node.input[1], node.output[0]
        nodes += [
            helper.make_node("Gather", [base + ".int8", ids], [base + ".rows"], name=base + ".gather_rows"),
            helper.make_node("Cast", [base + ".rows"], [base + ".floats"], name=base + ".cast", to=1),
            helper.make_node("Gather", [base + ".scale", ids], [base + ".scales"], name=base + ".gather_scale"),
            helper.make_node("Mul", [base + ".floats", base + ".scales"], [result], name=base + ".mul"),
        ]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, str(out))


def quantise_matrices(path: Path, out: Path, *, per_channel: bool, reduce_range: bool) -> None:
    """Dynamic int8 quantisation of the transformer's matrices (activations are quantised at run time)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        str(path),
        str(out),
        op_types_to_quantize=["MatMul", "Attention"],
        per_channel=per_channel,
        reduce_range=reduce_range,
        weight_type=QuantType.QInt8,
        extra_options={"MatMulConstBOnly": True, "DefaultTensorType": 1},
    )


def write_tokenizer(source: Path, out: Path, max_tokens: int) -> None:
    """Copy tokenizer.json with padding off and truncation at ``max_tokens``: padding is the reader's choice."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(source))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=max_tokens)
    tokenizer.save(str(out), pretty=False)


def torch_embeddings(module: Any, tokenizer_file: Path, texts: Sequence[str]) -> Floats:
    """Reference by PyTorch, one text at a time: embeddings [n, dim] float32."""
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    rows = []
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([tokenizer.encode(text).ids], dtype=torch.int64)
            rows.append(module(ids, torch.ones_like(ids)).numpy()[0])
    return np.stack(rows).astype(np.float32)


def measure_parity(reference: Floats, exported: Floats) -> Parity:
    """Cosines between two sets of L2-normalised rows of the same texts."""
    cosines = np.einsum("ij,ij->i", reference, exported)
    return Parity(len(cosines), float(cosines.mean()), float(cosines.min()))


def export(
    model_folder: Path,
    out: Path,
    *,
    name: str,
    source: str,
    licence: str = "Apache-2.0",
    licence_file: Path = LICENCE_FILE,
    max_tokens: int = 256,
    query_prefix: str = "",
    document_prefix: str = "",
    nothing: str = "",
    per_channel: bool = True,
    reduce_range: bool = False,
    texts: Sequence[str] = PARITY_TEXTS,
    min_parity: float = 0.98,
) -> Parity:
    """Export, quantise, check against PyTorch and write the asset folder; nothing is replaced if the check fails.

    Raises BadInput if the mean cosine with PyTorch's embeddings is under ``min_parity``; NotFound without weights.
    """
    from transformers import AutoModel

    from toolscout.index.encoder import OnnxEncoder

    if not (model_folder / "config.json").is_file():
        raise NotFound(f"There is no model in {model_folder}.", "Give the folder that holds config.json and weights.")
    model = AutoModel.from_pretrained(str(model_folder)).eval().float()
    module = build_module(model)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as name_of_folder:
        work = Path(name_of_folder)
        asset = work / "asset"
        asset.mkdir()
        export_graph(model, work / "float.onnx")
        quantise_embeddings(work / "float.onnx", work / "rows.onnx")
        quantise_matrices(work / "rows.onnx", asset / "model.onnx", per_channel=per_channel, reduce_range=reduce_range)
        write_tokenizer(model_folder / "tokenizer.json", asset / "tokenizer.json", max_tokens)
        shutil.copyfile(licence_file, asset / "LICENSE")
        write_card(
            asset,
            EncoderCard(
                name=name,
                dim=int(model.config.hidden_size),
                max_tokens=max_tokens,
                query_prefix=query_prefix,
                document_prefix=document_prefix,
                nothing=nothing,
                licence=licence,
                source=source,
            ),
        )
        reference = torch_embeddings(module, asset / "tokenizer.json", texts)
        with OnnxEncoder(asset, prefixes=False) as encoder:
            parity = measure_parity(reference, encoder.encode(list(texts)))
        if parity.mean < min_parity:
            raise BadInput(
                f"The export differs from PyTorch: mean cosine {parity.mean:.4f}, wanted {min_parity}.",
                "Try the other quantisation options.",
            )
        if out.exists():
            shutil.rmtree(out)
        asset.rename(out)
    return parity


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description="Export a sentence encoder to an int8 ONNX asset folder.")
    parser.add_argument("model_folder", type=Path, help="folder with config.json, weights and tokenizer.json")
    parser.add_argument("out", type=Path, help="asset folder to write, such as index/encoders/NAME")
    parser.add_argument("--name", required=True, help="name and version of the encoder")
    parser.add_argument("--source", required=True, help="where the weights come from")
    parser.add_argument("--licence", default="Apache-2.0")
    parser.add_argument("--licence-file", type=Path, default=LICENCE_FILE)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--query-prefix", default="")
    parser.add_argument("--document-prefix", default="")
    parser.add_argument(
        "--nothing", default="", help="the document that stands for no tool, if it was trained with one"
    )
    parser.add_argument("--per-tensor", action="store_true", help="one scale a matrix instead of one a column")
    parser.add_argument("--reduced-range", action="store_true", help="7-bit weights: sums never saturate")
    parser.add_argument("--texts", type=Path, help="texts for the parity check, one a line")
    parser.add_argument("--min-parity", type=float, default=0.98, help="least mean cosine with PyTorch's embeddings")
    args = parser.parse_args(argv)
    texts = PARITY_TEXTS
    if args.texts:
        texts = tuple(line for line in args.texts.read_text("utf-8").splitlines() if line.strip())
    parity = export(
        args.model_folder,
        args.out,
        name=args.name,
        source=args.source,
        licence=args.licence,
        licence_file=args.licence_file,
        max_tokens=args.max_tokens,
        query_prefix=args.query_prefix,
        document_prefix=args.document_prefix,
        nothing=args.nothing,
        per_channel=not args.per_tensor,
        reduce_range=args.reduced_range,
        texts=texts,
        min_parity=args.min_parity,
    )
    size = sum(f.stat().st_size for f in args.out.iterdir())
    print(
        json.dumps(
            {
                "folder": args.out.name,
                "megabytes": round(size / 1e6, 2),
                "texts": parity.texts,
                "mean_cosine": round(parity.mean, 5),
                "worst_cosine": round(parity.worst, 5),
            }
        )
    )


if __name__ == "__main__":
    main()
