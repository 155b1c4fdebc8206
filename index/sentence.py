"""Any sentence-transformers model by name, such as MCP-Flow's mxbai-embed-large-v1. Needs the extra ``embed``."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import ModelError, NotFound
from toolscout.index.encoder import Kind, printable

Vectors = npt.NDArray[np.float32]

MAX_CHARACTERS = 8000
BATCH = 32


class SentenceTransformerEncoder:
    """A sentence-transformers model: a name on the hub or a local folder, loaded at the first text. Its own query and
    document prompts are used where it has them; a GPU is used when there is one."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._loaded: Any = None

    @property
    def fingerprint(self) -> str:
        """Hash of the model's name."""
        return hashlib.sha256(f"sentence-transformers\0{self.model}".encode()).hexdigest()

    @property
    def dim(self) -> int:
        """Length of a vector; loads the model."""
        return int(self.encode(["dimension"]).shape[1])

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        """Vectors of the texts: float32 [n, dim], L2-normalised.

        Raises ModelError without the extra, NotFound if the model cannot be had.
        """
        model = self._load()
        encode = model.encode_query if kind == "query" else model.encode_document
        vectors = encode(
            [printable(t[:MAX_CHARACTERS]) for t in texts] or ["dimension"],
            batch_size=BATCH,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        found: Vectors = np.asarray(vectors, dtype=np.float32)[: len(texts)]
        return found

    def _load(self) -> Any:
        with self._lock:
            if self._loaded is None:
                try:
                    from sentence_transformers import SentenceTransformer
                except ImportError:
                    raise ModelError(
                        "sentence-transformers is not installed.", "Install it with `pip install 'toolscout[embed]'`."
                    ) from None
                try:
                    self._loaded = SentenceTransformer(self.model)
                except (OSError, ValueError) as error:
                    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                    raise NotFound(f"The model {self.model} cannot be loaded: {reason}", "Check its name.") from None
            return self._loaded
