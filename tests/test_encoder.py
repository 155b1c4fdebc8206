"""The encoders: the one that ships, by name, by folder, and over HTTP against a real server."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscout.errors import BadInput, ModelError, NotAllowed, NotFound, StorageError
from toolscout.index import remote
from toolscout.index.asset import CARD, DEFAULT_ENCODER, encoders_folder, read_card, verify
from toolscout.index.encoder import Encoder, OnnxEncoder, make_encoder
from toolscout.index.remote import OpenAIEncoder
from toolscout.settings import Settings

FOLDER = encoders_folder() / DEFAULT_ENCODER


@pytest.fixture(scope="module")
def encoder() -> Iterator[OnnxEncoder]:
    with OnnxEncoder(FOLDER) as found:
        yield found


def test_asset_is_whole_small_and_licensed() -> None:
    card = verify(FOLDER)
    assert card.fingerprint
    assert sum(f.stat().st_size for f in FOLDER.iterdir()) <= 30_000_000
    assert "Apache License" in (FOLDER / "LICENSE").read_text("utf-8")
    tokenizer = json.loads((FOLDER / "tokenizer.json").read_text("utf-8"))
    assert tokenizer["padding"] is None
    assert tokenizer["truncation"]["max_length"] == card.max_tokens


def test_vectors_are_normalised_and_mean_something(encoder: OnnxEncoder) -> None:
    texts = ["convert euros to dollars", "currency exchange rates", "play a song on the speaker"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (3, encoder.dim)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-4)
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.5 > alike[0, 2] + 0.2


def test_a_text_has_one_vector_whatever_it_is_encoded_with(encoder: OnnxEncoder) -> None:
    texts = ["list files", "a much longer text about the listing of files in folders " * 5, "東京", ""]
    together = encoder.encode(texts)
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(encoder.encode([text])[0], vector)
    with OnnxEncoder(FOLDER, threads=2) as threaded:
        assert np.array_equal(threaded.encode(texts), together)


@pytest.mark.parametrize("text", ["", "\ud800 lone", "x" * 100_000, "a " * 50_000, "\x00\x01", "😀" * 500])
def test_odd_texts(encoder: OnnxEncoder, text: str) -> None:
    assert np.isfinite(encoder.encode([text])).all()


def test_no_texts(encoder: OnnxEncoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_prefixes_are_used_by_kind(tmp_path: Path, encoder: OnnxEncoder) -> None:
    folder = tmp_path / "prefixed"
    shutil.copytree(FOLDER, folder)
    card = json.loads((folder / CARD).read_text("utf-8"))
    (folder / CARD).write_text(json.dumps(card | {"query_prefix": "query: "}), "utf-8")
    with OnnxEncoder(folder) as prefixed:
        assert np.array_equal(prefixed.encode(["rain"], kind="query"), encoder.encode(["query: rain"]))
        assert np.array_equal(prefixed.encode(["rain"]), encoder.encode(["rain"]))
    with pytest.raises(NotAllowed, match="altered"):
        verify(folder)


def test_changed_truncated_and_missing_files_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(FOLDER, folder)
    tokenizer = folder / "tokenizer.json"
    data = bytearray(tokenizer.read_bytes())
    data[-3] ^= 1
    tokenizer.write_bytes(data)
    read_card(folder)
    with pytest.raises(NotAllowed, match=r"tokenizer\.json was altered"):
        verify(folder)
    tokenizer.write_bytes(data[:-10])
    with pytest.raises(StorageError, match="incomplete"):
        OnnxEncoder(folder)
    (folder / CARD).write_text("{", "utf-8")
    with pytest.raises(StorageError, match="cannot be read"):
        OnnxEncoder(folder)
    (folder / CARD).unlink()
    with pytest.raises(NotFound):
        OnnxEncoder(folder)


def test_encoder_by_name(settings: Settings, tmp_path: Path) -> None:
    assert isinstance(make_encoder(settings), OnnxEncoder)
    assert isinstance(make_encoder(settings), Encoder)
    by_folder = make_encoder(settings.model_copy(update={"encoder": str(FOLDER)}))
    assert by_folder.fingerprint == make_encoder(settings).fingerprint
    with pytest.raises(BadInput, match="nonsense"):
        make_encoder(settings.model_copy(update={"encoder": "nonsense"}))
    with pytest.raises(BadInput, match="endpoint"):
        make_encoder(settings.model_copy(update={"encoder": "openai:m"}))


def test_missing_sentence_transformers_is_explained(settings: Settings) -> None:
    encoder = make_encoder(settings.model_copy(update={"encoder": "st:no-such-model"}))
    try:
        import sentence_transformers  # noqa: F401
    except ImportError:
        with pytest.raises(ModelError, match="not installed"):
            encoder.encode(["x"])
    else:
        with pytest.raises(NotFound):
            encoder.encode(["x"])


def test_searching_imports_nothing_heavy() -> None:
    code = (
        "import sys; import toolscout.index.search, toolscout.index.encoder;"
        "print([m for m in ('torch','transformers','sentence_transformers','faiss','onnxruntime','sqlalchemy','httpx')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Endpoint:
    """A small embeddings endpoint on a free port. ``answers`` are sent first, one each, then real vectors."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answers: list[tuple[int, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(body | {"path": self.path})
                endpoint.keys.append(self.headers.get("Authorization"))
                status, answer = endpoint.answers.pop(0) if endpoint.answers else (200, endpoint.vectors(body["input"]))
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @staticmethod
    def vectors(texts: list[str]) -> dict[str, Any]:
        """Vectors that depend on the text, unnormalised, in reverse order."""
        data = [
            {"index": i, "embedding": [float(b) - 127 for b in hashlib.sha256(t.encode()).digest()[:8]]}
            for i, t in enumerate(texts)
        ]
        return {"data": data[::-1]}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(remote, "PAUSE_S", 0.001)
    found = Endpoint()
    yield found
    found.close()


def test_endpoint_gives_vectors_in_order_in_batches(endpoint: Endpoint) -> None:
    encoder = OpenAIEncoder("small", endpoint.url, "sesame")
    texts = [f"text {i}" for i in range(remote.BATCH + 5)]
    vectors = encoder.encode(texts)
    assert vectors.shape == (len(texts), 8)
    assert encoder.dim == 8
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    for i in (0, 3, len(texts) - 1):
        assert np.allclose(encoder.encode([texts[i]])[0], vectors[i])
    assert [len(r["input"]) for r in endpoint.requests[:2]] == [remote.BATCH, 5]
    assert {(r["path"], r["model"]) for r in endpoint.requests} == {("/v1/embeddings", "small")}
    assert set(endpoint.keys) == {"Bearer sesame"}
    encoder.close()


def test_endpoint_is_asked_again_when_it_is_busy(endpoint: Endpoint) -> None:
    endpoint.answers = [(429, "busy"), (503, "busy")]
    encoder = OpenAIEncoder("small", endpoint.url)
    assert encoder.encode(["x"]).shape == (1, 8)
    assert len(endpoint.requests) == 3
    assert set(endpoint.keys) == {None}
    encoder.close()


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ((401, "no"), NotAllowed, "refused the key"),
        ((400, '{"error": "unknown model"}'), ModelError, "400.*unknown model"),
        ((200, "<html>"), ModelError, "no JSON"),
        ((200, {"data": []}), ModelError, "0 vectors for 1"),
        ((200, {"data": [{"index": 0, "embedding": ["a"]}]}), ModelError, "no usable vectors"),
        ((200, {"data": [{"index": 0, "embedding": []}]}), ModelError, "vectors"),
        ((200, [1]), ModelError, "no usable vectors"),
    ],
)
def test_endpoint_failures_are_clear(
    endpoint: Endpoint, answer: tuple[int, Any], kind: type[Exception], message: str
) -> None:
    endpoint.answers = [answer]
    encoder = OpenAIEncoder("small", endpoint.url, "sesame")
    with pytest.raises(kind, match=message) as caught:
        encoder.encode(["x"])
    assert "sesame" not in str(caught.value)
    encoder.close()


def test_unreachable_endpoint(endpoint: Endpoint) -> None:
    url = endpoint.url
    endpoint.server.server_close()
    encoder = OpenAIEncoder("small", url)
    with pytest.raises(ModelError, match="cannot be reached"):
        encoder.encode(["x"])
    encoder.close()
