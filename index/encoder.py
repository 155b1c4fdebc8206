"""Text encoders behind one small interface: texts in, L2-normalised vectors out.

``make_encoder(settings)`` reads ``settings.encoder``: ``default`` (the ONNX encoder that ships with the package), a
path to an encoder folder, ``st:<model>`` (sentence-transformers) or ``openai:<model>`` (an embeddings endpoint).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.index.asset import DEFAULT_ENCODER, MODEL, TOKENIZER, EncoderCard, encoders_folder, read_card

if TYPE_CHECKING:
    from toolscout.settings import Settings

Vectors = npt.NDArray[np.float32]
Kind = Literal["query", "document"]

CHARACTERS_A_TOKEN = 16
"""Text beyond ``max_tokens`` times this is cut before it is tokenised: a 100 kB text costs no more than a long one."""


@runtime_checkable
class Encoder(Protocol):
    """What the index needs of an encoder."""

    @property
    def fingerprint(self) -> str:
        """Names the exact vectors: encoders with the same fingerprint give the same vectors."""

    @property
    def dim(self) -> int:
        """Length of a vector."""

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        """Vectors of the texts: float32 [n, dim], rows L2-normalised, in the order given. Thread-safe."""


def make_encoder(settings: Settings, *, threads: int | None = None) -> Encoder:
    """The encoder that the settings name. Cheap: models are loaded at the first text.

    Raises BadInput for an unknown name, NotFound or StorageError for a broken folder.
    """
    name = settings.encoder
    scheme, _, model = name.partition(":")
    if name == "default":
        return OnnxEncoder(encoders_folder() / DEFAULT_ENCODER, threads=threads or settings.encoder_threads)
    if scheme == "st" and model:
        from toolscout.index.sentence import SentenceTransformerEncoder

        return SentenceTransformerEncoder(model)
    if scheme == "openai" and model:
        from toolscout.index.remote import OpenAIEncoder

        return OpenAIEncoder(model, settings.encoder_url, settings.encoder_key)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return OnnxEncoder(folder, threads=threads or settings.encoder_threads)
    raise BadInput(
        f"There is no encoder called {name!r}.",
        "TOOLSCOUT_ENCODER is 'default', a folder with encoder.json, 'st:<model>' or 'openai:<model>'.",
    )


def printable(text: str) -> str:
    """The text with lone surrogates replaced: tokenizers and JSON encoders refuse them, crawled text has them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


class OnnxEncoder:
    """An encoder folder (see ``asset``) run by ONNX Runtime. The model is loaded at the first text.

    Texts go through the model one at a time, ``threads`` of them side by side: dynamic quantisation takes its scales
    from the whole batch, so only a batch of one gives a text the same vector whatever it is encoded with; and no
    padding is computed. ``prefixes=False`` leaves out the card's query and document prefixes.
    """

    def __init__(self, folder: Path, *, threads: int = 1, prefixes: bool = True) -> None:
        self.card: EncoderCard = read_card(folder)
        self.folder = folder
        self.threads = max(1, threads)
        self._prefixes = prefixes
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def fingerprint(self) -> str:
        """The card's fingerprint: files, token limit and prefixes."""
        return self.card.fingerprint

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.card.dim

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        """Vectors of the texts: float32 [n, dim], rows L2-normalised."""
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        for i, vector in enumerate(self._run(texts, kind)):
            vectors[i] = vector
        return vectors

    def _run(self, texts: Sequence[str], kind: Kind) -> Iterator[Vectors]:
        """The vector [dim] of each text, in order."""
        session, tokenizer = self._load()
        prefix = ""
        if self._prefixes:
            prefix = self.card.query_prefix if kind == "query" else self.card.document_prefix
        limit = self.card.max_tokens * CHARACTERS_A_TOKEN

        def one(text: str) -> Vectors:
            ids = tokenizer.encode(prefix + printable(text[:limit])).ids[: self.card.max_tokens]
            tokens = np.asarray([ids], dtype=np.int64)
            inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
            vector: Vectors = session.run(["embedding"], inputs)[0][0]
            return vector

        if self.threads == 1 or len(texts) < 2:
            return map(one, texts)
        with self._lock:
            self._pool = self._pool or ThreadPoolExecutor(self.threads, thread_name_prefix="encoder")
        return self._pool.map(one, texts)

    def warm(self) -> None:
        """Load the model now, so that the first query does not wait for it."""
        self.encode(["warm"], kind="query")

    def close(self) -> None:
        """Let the model and the threads go; a later ``encode`` loads again."""
        with self._lock:
            self._loaded = None
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = None

    def __enter__(self) -> OnnxEncoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is not None:
            return self._loaded
        with self._lock:
            if self._loaded is None:
                # Its wheels send usage data home (since 1.29 on Linux too) unless told not to before the library loads.
                os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
                import onnxruntime as ort
                from tokenizers import Tokenizer

                options = ort.SessionOptions()
                options.intra_op_num_threads = 1
                options.inter_op_num_threads = 1
                options.log_severity_level = 3
                # The arena keeps the largest text's working memory for ever; without it a query is no slower.
                options.enable_cpu_mem_arena = False
                options.enable_mem_pattern = False
                session = ort.InferenceSession(
                    str(self.folder / MODEL),
                    sess_options=options,
                    providers=["CPUExecutionProvider"],
                    # Its fused node is slower than the sum and the norm by themselves: a quarter of a query's time.
                    disabled_optimizers=["SkipLayerNormFusion"],
                )
                self._loaded = (session, Tokenizer.from_file(str(self.folder / TOKENIZER)))
        return self._loaded
