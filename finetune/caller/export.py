"""What serving loads, from a trained adapter: GGUF adapter and merged GGUF for llama.cpp, a merged checkpoint else.

The PEFT folder itself is what vLLM takes (``--enable-lora``). Beside each GGUF file stands a small JSON of the same
name that says how the model wants to be asked (style, budget) and, for an adapter, on which base it sits.

GGUF names and layouts are llama.cpp's: an adapter holds ``blk.N.attn_q.weight.lora_a`` [rank, in] and ``.lora_b``
[out, rank]; for architecture ``llama`` the rows of query and key are permuted, head by head, from halves to pairs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, NotFound
from toolscout.finetune.caller.base import load_base, require_training
from toolscout.index.asset import file_sha256
from toolscout.records import JsonObject

Floats = npt.NDArray[np.float32]

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""``model_type`` of a checkpoint, and the architecture's name in GGUF."""

PROMPT = "prompt.json"
"""Beside an adapter: style and budget of the prompts it was trained on."""

PREFIX = "base_model.model."


@dataclass(frozen=True)
class Pair:
    """One module's adapter in llama.cpp's layout: ``a`` float32 [rank, in], ``b`` float32 [out, rank]."""

    name: str
    a: Floats
    b: Floats


def adapter_pairs(adapter: Path, base: Path) -> tuple[list[Pair], float, str]:
    """(pairs by GGUF tensor name, alpha, architecture) of a PEFT folder over the checkpoint ``base``."""
    require_training("gguf", "safetensors")
    import gguf
    from safetensors.numpy import load_file

    weights = adapter / "adapter_model.safetensors"
    if not weights.is_file():
        raise NotFound(f"There is no adapter in {adapter}.", "Give the adapter folder of a training run.")
    settings = json.loads((adapter / "adapter_config.json").read_text("utf-8"))
    config = json.loads((base / "config.json").read_text("utf-8"))
    architecture = ARCHITECTURES.get(str(config.get("model_type")))
    if architecture is None:
        raise BadInput(
            f"GGUF adapters of {config.get('model_type')} are not written here.", f"Known: {', '.join(ARCHITECTURES)}."
        )
    kind = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(kind, int(config["num_hidden_layers"]))
    heads = int(config["num_attention_heads"])
    heads_of = {"q_proj": heads, "k_proj": int(config.get("num_key_value_heads", heads))}
    found = {k.removeprefix(PREFIX): np.asarray(v, dtype=np.float32) for k, v in load_file(weights).items()}
    pairs = []
    for key in sorted(k for k in found if k.endswith(".lora_A.weight")):
        module = key.removesuffix(".lora_A.weight")
        name = names.get_name(module)
        if name is None:
            raise BadInput(f"The adapter's module {module} has no name in GGUF.", "Train with --targets all-linear.")
        b = found[f"{module}.lora_B.weight"]
        last = module.rpartition(".")[2]
        if architecture == "llama" and last in heads_of:
            b = permuted(b, heads_of[last])
        pairs.append(Pair(f"{name}.weight", found[key], b))
    scale = "rslora" if settings.get("use_rslora") else ""
    if scale or settings.get("rank_pattern") or settings.get("alpha_pattern"):
        raise BadInput("Adapters with rsLoRA or patterns of ranks are not exported.", "Train a plain LoRA.")
    return pairs, float(settings["lora_alpha"]), architecture


def permuted(rows: Floats, heads: int) -> Floats:
    """Rows [out, n] of a query or key projection from halves (Hugging Face) to pairs (llama.cpp) within each head."""
    shaped = rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1])
    return np.ascontiguousarray(shaped.swapaxes(1, 2).reshape(rows.shape))


def write_gguf_adapter(adapter: Path, base: Path, out: Path, served: JsonObject) -> Path:
    """The adapter as a GGUF file in float16. ``served`` and the file's hash go into the JSON beside it."""
    import gguf

    pairs, alpha, architecture = adapter_pairs(adapter, base)
    part = _part(out)
    writer = gguf.GGUFWriter(part, architecture)
    writer.add_string("general.type", "adapter")
    writer.add_string("general.name", out.stem)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for pair in pairs:
        writer.add_tensor(f"{pair.name}.lora_a", pair.a.astype(np.float16))
        writer.add_tensor(f"{pair.name}.lora_b", pair.b.astype(np.float16))
    _finish(writer)
    part.replace(out)
    _beside(out, {**served, "sha256": file_sha256(out)})
    return out


def write_gguf_merged(
    adapter: Path, base: Path, gguf_base: Path, out: Path, served: JsonObject, kind: str = ""
) -> Path:
    """The base's GGUF file with the adapter added in.

    ``kind`` names the type of the changed tensors (``Q8_0``, ``F16``, ...); by default each keeps its own where it can
    be written, else it becomes ``Q8_0``. What the adapter does not touch is copied as it is.
    """
    import gguf

    pairs, alpha, architecture = adapter_pairs(adapter, base)
    deltas = {pair.name: pair for pair in pairs}
    reader = gguf.GGUFReader(gguf_base)
    part = _part(out)
    writer = gguf.GGUFWriter(part, architecture)
    for name, value, types in _fields(reader):
        sub = types[-1] if len(types) > 1 else None
        writer.add_key_value(name, value, types[0], sub_type=sub)
    for tensor in reader.tensors:
        pair = deltas.pop(tensor.name, None)
        if pair is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        whole = gguf.dequantize(tensor.data, tensor.tensor_type) + alpha / len(pair.a) * (pair.b @ pair.a)
        data, written = _quantised(whole.astype(np.float32), kind, tensor.tensor_type.name)
        writer.add_tensor(tensor.name, data, raw_dtype=written)
    if deltas:
        raise BadInput(f"{gguf_base.name} has no tensor {min(deltas)}.", "Give the GGUF file of the same base.")
    _finish(writer)
    part.replace(out)
    _beside(out, served)
    return out


def write_merged(adapter: Path, base: Path, out: Path) -> Path:
    """A checkpoint (safetensors, tokenizer) with the adapter added in, for vLLM and transformers.

    How it wants to be asked goes along: ``toolscout model serve`` reads it from there.
    """
    require_training()
    import torch
    from peft import PeftModel

    model, tokenizer = load_base(base, dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    merged.config.use_cache = True
    merged.save_pretrained(str(out))
    tokenizer.save_pretrained(str(out))
    shutil.copyfile(_asked(adapter), out / "prompt.json")
    return out


def _asked(adapter: Path) -> Path:
    """The file that says how the adapter's rows were rendered."""
    path = adapter / PROMPT
    if not path.is_file():
        raise NotFound(
            f"There is no {PROMPT} in {adapter}, which says how the model was trained to be asked.",
            "Give the folder adapter/ of a run; a run that was stopped has one, too, a checkpoint has none.",
        )
    return path


def served_as(
    adapter: Path, *, base: str = "", base_gguf: Path | None = None, title: str = "", rank: float = 0.0
) -> JsonObject:
    """How the model wants to be asked, and on which base an adapter sits (a name for ``toolscout model pull``).

    ``title`` and ``rank`` are for an adapter that comes with Toolscout (:mod:`toolscout.server.adapters`).
    """
    out: JsonObject = dict(json.loads(_asked(adapter).read_text("utf-8")))
    if base:
        out["base"] = base
    if base_gguf is not None:
        out["base_sha256"] = file_sha256(base_gguf)
    if title:
        out |= {"title": title, "rank": rank}
    return out


def _fields(reader: Any) -> Iterator[tuple[str, Any, list[Any]]]:
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            yield name, field.contents(), field.types


def _quantised(values: Floats, asked: str, own: str) -> tuple[Any, Any]:
    import gguf

    try:
        written = gguf.GGMLQuantizationType[asked or own]
        return gguf.quantize(values, written), written
    except (KeyError, NotImplementedError, gguf.quants.QuantError):  # the k-quants can be read, not written
        if asked:
            raise BadInput(f"Tensors of type {asked!r} cannot be written.", "Known: Q8_0, Q5_1, Q4_1, F16.") from None
        return gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0


def _part(out: Path) -> Path:
    """Where a file is written until it is whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.with_name(out.name + ".part")


def _finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _beside(out: Path, served: JsonObject) -> None:
    out.with_suffix(".json").write_text(json.dumps(served, indent=2) + "\n", "utf-8")
