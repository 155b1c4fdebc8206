"""A GGUF adapter taken back to a PEFT folder, so that what is shipped can be trained on.

The inverse of :func:`~toolscout.finetune.caller.export.write_gguf_adapter`: llama.cpp's tensor names become the
checkpoint's modules again, and for architecture ``llama`` the rows of query and key go back from pairs to halves.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from toolscout.errors import BadInput, NotFound
from toolscout.files import whole_folder, write_json
from toolscout.finetune.caller.base import WEIGHTS_FILE, made_before, note_source, require_training
from toolscout.finetune.caller.export import ARCHITECTURES, PREFIX, PROMPT, Floats


def adapter_folder(gguf_adapter: Path, base: Path, out: Path) -> Path:
    """The adapter as a PEFT folder in ``out`` (kept if it is there), to learn on over the checkpoint ``base``.

    How it wants to be asked is read from the JSON beside the file. Raises NotFound, BadInput where the file is no
    adapter or does not fit the base.
    """
    if made_before(out, gguf_adapter, WEIGHTS_FILE):
        return out
    require_training("gguf", "safetensors")
    if not gguf_adapter.is_file():
        raise NotFound(f"There is no file {gguf_adapter}.", "Give an adapter folder, or a .gguf adapter.")
    import gguf
    from peft import LoraConfig
    from safetensors.numpy import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    reader = gguf.GGUFReader(gguf_adapter)
    alpha = reader.get_field("adapter.lora.alpha")
    if alpha is None:
        raise BadInput(f"{gguf_adapter.name} is not a LoRA adapter.", "Give what train caller-export wrote.")
    config = AutoConfig.from_pretrained(str(base), local_files_only=True)
    architecture = ARCHITECTURES.get(config.model_type, "")
    held = reader.get_field("general.architecture")
    if held is None or held.contents() != architecture:
        raise BadInput(f"{gguf_adapter.name} does not fit the base in {base}.", "Give the base it sits on.")
    kind = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads}
    heads["k_proj"] = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    import torch

    with torch.device("meta"):  # the modules' names, without their weights
        bare = AutoModelForCausalLM.from_config(config)
    modules = {
        f"{name}.weight": module for module, _ in bare.named_modules() if (name := names.get_name(module)) is not None
    }
    found: dict[str, Floats] = {}
    for tensor in reader.tensors:
        name, _, which = tensor.name.rpartition(".lora_")
        module = modules.get(name)
        if module is None or which not in ("a", "b"):
            raise BadInput(f"The base in {base} has no tensor {tensor.name}.", "Give the base the adapter sits on.")
        values = np.asarray(tensor.data, dtype=np.float32)
        last = module.rpartition(".")[2]
        if which == "b" and architecture == "llama" and last in heads:
            values = unpermuted(values, heads[last])
        found[f"{PREFIX}{module}.lora_{which.upper()}.weight"] = np.ascontiguousarray(values)
    rank = next(len(values) for key, values in found.items() if key.endswith(".lora_A.weight"))
    targets = sorted({key.removesuffix(".lora_A.weight").rpartition(".")[2] for key in found if ".lora_A." in key})
    asked = json.loads(gguf_adapter.with_suffix(".json").read_text("utf-8"))
    with whole_folder(out) as folder:
        LoraConfig(
            r=rank,
            lora_alpha=alpha.contents(),
            lora_dropout=0.0,
            target_modules=targets,
            task_type="CAUSAL_LM",
            base_model_name_or_path=base.name,
        ).save_pretrained(str(folder))
        write_json(folder / PROMPT, {"style": asked["style"], "budget": asked["budget"]})
        save_file(found, folder / WEIGHTS_FILE)
        note_source(folder, gguf_adapter)
    return out


def unpermuted(rows: Floats, heads: int) -> Floats:
    """Rows [out, n] of a query or key projection from pairs (llama.cpp) to halves (Hugging Face) within each head."""
    shaped = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return np.ascontiguousarray(shaped.swapaxes(1, 2).reshape(rows.shape))
