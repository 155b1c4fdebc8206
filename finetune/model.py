"""Sentence encoders in PyTorch, as training and its checks use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, NotFound
from toolscout.index.asset import MODEL, file_sha256
from toolscout.index.encoder import printable

Floats = npt.NDArray[np.float32]


def load_model(folder: Path, max_tokens: int, *, dropout: float | None = None) -> Any:
    """A sentence-transformers model in float32, on the GPU if there is one; ``dropout`` instead of its own if given.

    Raises BadInput unless it pools by the mean, as the exported graph does.
    """
    from sentence_transformers import SentenceTransformer

    rates = {} if dropout is None else {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = SentenceTransformer(str(folder), local_files_only=True, config_kwargs=rates).float()
    pooling = next((m for m in model.modules() if type(m).__name__ == "Pooling"), None)
    mode = getattr(pooling, "pooling_mode", None) or (pooling.get_pooling_mode_str() if pooling is not None else "none")
    if mode not in ("mean", ("mean",)):
        raise BadInput(f"{folder} pools by {mode}; the export pools by the mean.", "Choose a base that pools by mean.")
    model.max_seq_length = max_tokens
    model.model_card_data.widget = [{"text": ""}]  # else texts of the data go into the checkpoints' cards
    return model


def encode(model: Any, texts: Sequence[str], prefix: str = "") -> Floats:
    """Vectors of texts by a sentence-transformers model: float32 [n, dim], L2-normalised, in the order given."""
    found = model.encode(
        [prefix + printable(t) for t in texts],
        batch_size=256 if model.device.type == "cuda" else 32,
        normalize_embeddings=True,
        convert_to_numpy=True,
        show_progress_bar=False,
    )
    vectors: Floats = np.asarray(found, dtype=np.float32)
    return vectors


def use_threads(count: int) -> None:
    """Let PyTorch compute on so many CPU threads; 0: its own choice."""
    if count:
        import torch

        torch.set_num_threads(count)


def model_hash(folder: Path) -> str:
    """SHA-256 (hex) of a model folder's weights file, or of an exported encoder's."""
    for name in ("model.safetensors", "pytorch_model.bin", MODEL):
        if (folder / name).is_file():
            return file_sha256(folder / name)
    raise NotFound(f"There are no weights in {folder}.", "Give the folder that holds model.safetensors.")
