"""Embeddings from any OpenAI-compatible HTTP endpoint: OpenAI, vLLM, Ollama, the llama.cpp server and others."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, ModelError, NotAllowed
from toolscout.index.encoder import Kind, printable

Vectors = npt.NDArray[np.float32]

BATCH = 64
MAX_CHARACTERS = 8000
"""Longer texts are cut: endpoints refuse what exceeds their context instead of cutting it."""

TIMEOUT_S = 60.0
PAUSE_S = 0.25
_TRIES = 4
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class OpenAIEncoder:
    """``POST <url>/embeddings`` with ``{"model", "input"}``. Failures that pass (429, 5xx, a lost connection) are tried
    again up to three times with growing pauses."""

    def __init__(self, model: str, url: str, key: str = "", *, timeout: float = TIMEOUT_S) -> None:
        if not url:
            raise BadInput(
                f"The encoder openai:{model} has no endpoint.",
                "Set TOOLSCOUT_ENCODER_URL to the base URL, such as http://localhost:11434/v1.",
            )
        self.model = model
        self.url = url.rstrip("/").removesuffix("/embeddings") + "/embeddings"
        self._key = key
        self._timeout = timeout
        self._dim: int | None = None
        self._client: Any = None
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Hash of endpoint and model. A model that is replaced under the same name is not noticed."""
        return hashlib.sha256(f"openai\0{self.url}\0{self.model}".encode()).hexdigest()

    @property
    def dim(self) -> int:
        """Length of a vector; asks the endpoint once."""
        if self._dim is None:
            self.encode(["dimension"])
        assert self._dim is not None
        return self._dim

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        """Vectors of the texts: float32 [n, dim], L2-normalised.

        Raises NotAllowed if the key is refused, ModelError if the endpoint cannot be used.
        """
        rows: list[Vectors] = []
        for start in range(0, len(texts), BATCH):
            batch = [printable(t[:MAX_CHARACTERS]) or " " for t in texts[start : start + BATCH]]
            rows.append(self._read(self._post({"model": self.model, "input": batch}), len(batch)))
        if not rows:
            return np.zeros((0, self.dim), dtype=np.float32)
        return np.concatenate(rows)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _post(self, body: dict[str, Any]) -> Any:
        import httpx

        with self._lock:
            if self._client is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                self._client = httpx.Client(timeout=self._timeout, headers=headers)
        problem = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(PAUSE_S * 2**attempt)
            try:
                response = self._client.post(self.url, json=body)
            except httpx.InvalidURL as error:
                raise BadInput(f"The embeddings endpoint's URL is malformed: {error}.", _CHECK_URL) from None
            except httpx.HTTPError as error:
                problem = f"cannot be reached: {str(error) or type(error).__name__}"
                continue
            if response.status_code in (401, 403):
                raise NotAllowed("The embeddings endpoint refused the key.", "Set TOOLSCOUT_ENCODER_KEY.")
            if response.status_code in _RETRIED:
                problem = f"answered {response.status_code}"
                continue
            if response.status_code != 200:
                said = " ".join(response.text.split())[:200]
                raise ModelError(f"The embeddings endpoint answered {response.status_code}: {said}", _CHECK_URL)
            try:
                return response.json()
            except ValueError:
                raise ModelError("The embeddings endpoint's answer is no JSON.", _CHECK_URL) from None
        raise ModelError(f"The embeddings endpoint {self.url} {problem}.", _CHECK_URL)

    def _read(self, answer: Any, count: int) -> Vectors:
        """Vectors of an answer, in the order of its ``index`` fields, normalised."""
        try:
            entries = sorted(answer["data"], key=lambda entry: int(entry["index"]))
            vectors = np.array([entry["embedding"] for entry in entries], dtype=np.float32)
        except (KeyError, TypeError, ValueError):
            raise ModelError("The embeddings endpoint's answer has no usable vectors.", _CHECK_URL) from None
        if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1] or not np.isfinite(vectors).all():
            raise ModelError(f"The embeddings endpoint gave {len(vectors)} vectors for {count} texts.", _CHECK_URL)
        if self._dim is not None and vectors.shape[1] != self._dim:
            raise ModelError(f"The embeddings changed from {self._dim} to {vectors.shape[1]} numbers.", _CHECK_URL)
        self._dim = int(vectors.shape[1])
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors


_CHECK_URL = "Check TOOLSCOUT_ENCODER_URL and the model's name in TOOLSCOUT_ENCODER."
