"""Base weights: a checkpoint folder as it is, or a GGUF file turned into one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, ModelError, NotFound
from toolscout.files import whole_folder, write_json
from toolscout.finetune.caller.attention import register
from toolscout.index.asset import file_sha256

WEIGHTS_FILE = "adapter_model.safetensors"
SOURCE = "made_from.json"
NEEDED = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


def require_training(*more: str) -> None:
    """Raises ModelError when training libraries are not installed."""
    import importlib.util

    missing = [name for name in (*NEEDED, *more) if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"Training needs {', '.join(missing)}.", "Install it with `pip install 'toolscout[train]'`.")


def made_before(out: Path, gguf: Path, weights: str) -> bool:
    """Whether ``out`` holds what was made of the file ``gguf``. Raises BadInput if it was made of another."""
    if not any(out.glob(weights)):
        return False
    try:
        known = json.loads((out / SOURCE).read_text("utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return True  # made before there was a note
    if gguf.is_file() and known != file_sha256(gguf):
        raise BadInput(f"{out} was made of another file than {gguf.name}.", "Delete it, or name another place.")
    return True


def note_source(folder: Path, gguf: Path) -> None:
    """Keep for :func:`made_before` what ``folder`` was made of."""
    write_json(folder / SOURCE, {"file": gguf.name, "sha256": file_sha256(gguf)})


def prepare_base(gguf: Path, out: Path) -> Path:
    """A trainable checkpoint of a GGUF file's weights (dequantised) and tokenizer in ``out``; kept if it is there.

    An adapter trained on these very weights fits the quantised file that it will be served with. Raises NotFound,
    BadInput for a file that cannot be read so or an ``out`` of another file.
    """
    if made_before(out, gguf, "model*.safetensors"):
        return out
    require_training("gguf")
    if not gguf.is_file():
        raise NotFound(f"There is no file {gguf}.", "`toolscout model pull` fetches known models.")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # In a folder of its own: transformers would mix in what else lies beside the file.
    with tempfile.TemporaryDirectory() as alone:
        (Path(alone) / gguf.name).symlink_to(gguf.resolve())
        where: dict[str, Any] = {"pretrained_model_name_or_path": alone, "gguf_file": gguf.name}
        try:
            tokenizer = AutoTokenizer.from_pretrained(**where)
            model = AutoModelForCausalLM.from_pretrained(
                **where, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
            )
        except (ValueError, KeyError, NotImplementedError) as error:
            raise BadInput(
                f"{gguf.name} cannot be turned into a checkpoint: {error}.", "Give a folder with weights."
            ) from error
    # Else the checkpoint would claim to be quantised still.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with whole_folder(out) as folder:  # of several processes that make it at once the first one's stays
        tokenizer.save_pretrained(str(folder))
        model.save_pretrained(str(folder))
        note_source(folder, gguf)
    return out


def load_base(folder: Path, *, dtype: Any = None, attention: str = "sdpa") -> tuple[Any, Any]:
    """(model, tokenizer) of a checkpoint folder. Raises NotFound, BadInput without a chat template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (folder / "config.json").is_file():
        raise NotFound(f"There is no model in {folder}.", "Give the folder that holds config.json and weights.")
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    if not tokenizer.chat_template or not tokenizer.eos_token:
        raise BadInput(f"The tokenizer in {folder} has no chat template.", "Take the base's instruct version.")
    model = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=dtype, attn_implementation=attention, local_files_only=True
    )
    model.config.use_cache = False
    return model, tokenizer


def load_adapted(folder: Path, adapter: Path, *, bf16: bool = False, share: bool = True) -> tuple[Any, Any]:
    """(base with the adapter on it, to be trained on; tokenizer). ``share``: attention for prompts computed once.

    Raises NotFound where either is missing, BadInput when they do not fit.
    """
    import torch
    from peft import PeftModel

    check_adapter(adapter)
    model, tokenizer = load_base(
        folder, dtype=torch.bfloat16 if bf16 else torch.float32, attention=register() if share else "sdpa"
    )
    try:
        model = PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    except (RuntimeError, ValueError) as error:
        raise BadInput(
            f"The adapter in {adapter} does not fit the base: {str(error).splitlines()[0]}", "Give the base it sits on."
        ) from None
    return model, tokenizer


def check_adapter(folder: Path) -> Path:
    """The weights of an adapter folder. Raises NotFound."""
    weights = folder / WEIGHTS_FILE
    if not weights.is_file():
        raise NotFound(f"There is no adapter in {folder}.", "`toolscout train caller` writes RUN/adapter.")
    return weights
