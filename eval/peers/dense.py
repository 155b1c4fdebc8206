"""Peers that rank by the cosine of one vector a tool with the request's, exactly: no index, no words, no tuning.

The encoder is a folder: one of ours (``encoder.json``), or any ONNX export of a BERT-like model with its
``tokenizer.json`` (``model.onnx`` beside it or in ``onnx/``), whose token vectors are averaged over the mask, as
all-MiniLM and gte are meant to be used.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.eval.peers.base import ENCODER_FOLDER, RANK_DEPTH, PeerTask, RankedPeer, plain_text

if TYPE_CHECKING:
    from toolscout.index.encoder import Encoder, Kind

Vectors = npt.NDArray[np.float32]

MAX_TOKENS = 512
CHARACTERS_A_TOKEN = 16


def ask_dense(task: PeerTask, name: str, folder: Path) -> RankedPeer:
    """Brute-force cosine over the plain text of each tool with the encoder in ``folder``."""
    encoder = open_encoder(folder)
    ids = list(task.tools)
    peer = RankedPeer(f"plain vectors of the encoder {folder.name}, exact cosine")
    start = time.perf_counter()
    texts = [plain_text(tool, task.server_of(tool)) for tool in task.tools.values()]
    matrix = remembering(encoder, task.cache).encode(texts)
    peer.index_seconds = time.perf_counter() - start
    encoder.encode(["warm up"], kind="query")
    for row in task.rows:
        start = time.perf_counter()
        best = top(matrix @ encoder.encode([row.query], kind="query")[0], RANK_DEPTH)
        peer.ms.append((time.perf_counter() - start) * 1000)
        peer.ranked[row.id] = [ids[i] for i in best]
    return peer


def top(scores: Vectors, k: int) -> list[int]:
    """Positions of the k highest scores, best first; of equal ones the first."""
    k = min(k, len(scores))
    if k == 0:
        return []
    among = np.argpartition(-scores, k - 1)[:k]
    return [int(i) for i in among[np.lexsort((among, -scores[among]))]]


def remembering(encoder: Encoder, cache: Path | None) -> Encoder:
    """The encoder, remembering vectors in the cache folder if there is one: for documents, never for timed requests."""
    if cache is None:
        return encoder
    from toolscout.eval.vector_cache import CachingEncoder

    return CachingEncoder(encoder, cache)


def open_encoder(folder: Path) -> Encoder:
    """The encoder in a folder, ours or a plain ONNX export. Raises BadInput if there is none."""
    if (folder / "encoder.json").is_file():
        from toolscout.index.encoder import OnnxEncoder

        return OnnxEncoder(folder, threads=os.cpu_count() or 1)
    return MeanPooledOnnx(folder, threads=os.cpu_count() or 1)


class MeanPooledOnnx:
    """A plain ONNX export: the mean of its token vectors over the mask, L2-normalised. Texts go through one by one."""

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        model = next((p for p in (folder / "model.onnx", folder / "onnx" / "model.onnx") if p.is_file()), None)
        tokenizer = folder / "tokenizer.json"
        if model is None or not tokenizer.is_file():
            raise BadInput(
                f"There is no encoder in {folder}.",
                ENCODER_FOLDER,
            )
        import onnxruntime as ort
        from tokenizers import Tokenizer

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session: Any = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
            self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
        except Exception as error:
            raise BadInput(f"The encoder in {folder} cannot be read: {str(error).splitlines()[0]}.") from None
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._threads = threads
        with model.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        digest.update(tokenizer.read_bytes())
        digest.update(json.dumps([MAX_TOKENS, "mean"]).encode())
        self._fingerprint = digest.hexdigest()
        self._dim = len(self._one("dimension"))

    @property
    def fingerprint(self) -> str:
        """Hash of the model, its tokenizer and how they are used."""
        return self._fingerprint

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._dim

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        """Vectors of the texts: float32 [n, dim], rows L2-normalised. Requests and documents alike."""
        vectors = np.empty((len(texts), self._dim), dtype=np.float32)
        if len(texts) == 1:
            vectors[0] = self._one(texts[0])
            return vectors
        with ThreadPoolExecutor(self._threads) as pool:
            for i, row in enumerate(pool.map(self._one, texts)):
                vectors[i] = row
        return vectors

    def _one(self, text: str) -> Vectors:
        from toolscout.index.encoder import printable

        ids = self._tokenizer.encode(printable(text[: MAX_TOKENS * CHARACTERS_A_TOKEN])).ids
        tokens = np.asarray([ids], dtype=np.int64)
        given = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        return pooled(self._session.run(None, {name: given[name] for name in self._inputs})[0])


def pooled(output: npt.NDArray[Any]) -> Vectors:
    """One text's vector, L2-normalised: the mean of its token vectors [1, tokens, dim], or the output [1, dim]."""
    vector = output[0].mean(axis=0) if output.ndim == 3 else output[0]
    found: Vectors = (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
    return found
