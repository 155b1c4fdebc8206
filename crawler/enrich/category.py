"""A server's category: one of the ten of MCP-Flow's release (arXiv 2510.24284).

A category that a marketplace states is kept where it is one of the ten or another word for one. Otherwise it is told
from two vectors of the encoder that ships with the package, of what the server says of itself and of its tools' names,
by a linear layer that was fitted to them (``python -m toolscout.finetune.fit_category``). Where no category is likely
enough it is Miscellaneous. The layer knows its encoder by the fingerprint and refuses any other: its numbers would mean
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.crawler.enrich.text import TEXT_VERSION, about, operations
from toolscout.errors import NotAllowed, StorageError
from toolscout.files import replace_file
from toolscout.index.encoder import Encoder
from toolscout.records import JsonObject, Server, Tool, canonical_json, sha256_hex

Floats = npt.NDArray[np.float64]

OTHER = "Miscellaneous"
CATEGORIES = (
    "Developer Tools",
    "Web Search & Data",
    OTHER,
    "Art & Entertainment",
    "Communication",
    "Finance",
    "Database",
    "Map & Weather",
    "File System",
    "Browser Automation",
)
HEAD = Path(__file__).parent / "category.json"

_SAME = {
    "Developer Tools": "development, developer, coding, programming, devops, version control, software development",
    "Web Search & Data": "search, web search, search and data extraction, web scraping, search engines",
    "Art & Entertainment": "entertainment, games, gaming, music, multimedia, art and culture, entertainment and media",
    "Communication": "messaging, email, social media, chat, communication tools",
    "Finance": "fintech, crypto, cryptocurrency, blockchain, payments, banking, finance and fintech",
    "Database": "databases, sql, data storage",
    "Map & Weather": "maps, weather, location services, maps and location, geolocation",
    "File System": "files, file systems, filesystem, file management, cloud storage",
    "Browser Automation": "browser, browsers, web automation",
}
_WORD = re.compile(r"[a-z]+")


def _plain(category: str) -> str:
    return " ".join(word for word in _WORD.findall(category.casefold()) if word != "and")


_STATED = {_plain(name): name for name in CATEGORIES} | {
    _plain(word): name for name, words in _SAME.items() for word in words.split(",")
}


def stated(category: str | None) -> str | None:
    """The one of the ten that a marketplace's word plainly means; None for all others."""
    return _STATED.get(_plain(category)) if category else None


@dataclass(frozen=True)
class Guess:
    """A category told from a server's texts, and how likely it is (0 to 1) before Miscellaneous took it."""

    category: str
    probability: float


@dataclass(frozen=True)
class Head:
    """The fitted layer. ``weights`` [2 * dim, 10], ``bias`` [10]; below ``least`` a server is Miscellaneous."""

    encoder: str
    weights: Floats
    bias: Floats
    least: float
    fitted: JsonObject

    @property
    def fingerprint(self) -> str:
        """Names what decides a category, texts aside."""
        parts = [self.encoder, TEXT_VERSION, self.least, self.weights.tolist(), self.bias.tolist()]
        return sha256_hex(canonical_json(parts))

    def probabilities(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """Of each category [n, 10], for vectors [n, 2 * dim]."""
        logits = vectors @ self.weights + self.bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: Floats = odds / odds.sum(axis=1, keepdims=True)
        return shares

    def guesses(self, vectors: npt.NDArray[np.floating]) -> list[Guess]:
        """The category of each row."""
        found = []
        for row in self.probabilities(vectors):
            best = int(row.argmax())
            likely = float(row[best])
            found.append(Guess(CATEGORIES[best] if likely >= self.least else OTHER, likely))
        return found


def read_head(path: Path = HEAD) -> Head:
    """The layer that ships, or another file of it. Raises StorageError for a file that is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
        weights, bias = np.array(value["weights"], float), np.array(value["bias"], float)
        if tuple(value["categories"]) != CATEGORIES or value["text"] != TEXT_VERSION:
            raise ValueError("it was fitted for other categories or texts")
        if weights.ndim != 2 or weights.shape[1] != len(CATEGORIES) or bias.shape != (len(CATEGORIES),):
            raise ValueError("its numbers are not in the shape of ten categories")
        return Head(str(value["encoder"]), weights, bias, float(value["least"]), dict(value.get("fitted", {})))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StorageError(
            f"The weights of categories in {path} cannot be used: {error}.",
            "Install Toolscout again, or fit them: python -m toolscout.finetune.fit_category",
        ) from None


def write_head(path: Path, head: Head) -> None:
    """Write the layer, one input's weights a line. Raises StorageError."""
    rows = ",\n".join(json.dumps([float(w) for w in row]) for row in head.weights)
    start = json.dumps(
        {
            "encoder": head.encoder,
            "text": TEXT_VERSION,
            "categories": CATEGORIES,
            "least": head.least,
            "fitted": head.fitted,
            "bias": [float(b) for b in head.bias],
        },
        indent=1,
    )
    replace_file(path, f'{start[:-2]},\n "weights": [\n{rows}\n]}}\n')


def vectors(encoder: Encoder, servers: Iterable[tuple[Server, Sequence[Tool]]]) -> npt.NDArray[np.float32]:
    """What a server is told by [n, 2 * dim]: the vector of what it says of itself, and that of its tools' names."""
    pairs = list(servers)
    texts = [about(server) for server, _ in pairs] + [operations(tools) for _, tools in pairs]
    found = encoder.encode(texts)
    return np.concatenate([found[: len(pairs)], found[len(pairs) :]], axis=1)


class Categoriser:
    """Tells categories with one encoder.

    Raises NotAllowed where the weights were fitted to another encoder.
    """

    def __init__(self, encoder: Encoder, head: Head | None = None) -> None:
        self.head = head or read_head()
        self._encoder = encoder
        self._fingerprint = self.head.fingerprint
        if encoder.fingerprint != self.head.encoder or encoder.dim * 2 != len(self.head.weights):
            raise NotAllowed(
                f"The weights of categories belong to the encoder {self.head.encoder[:12]}, not to "
                f"{encoder.fingerprint[:12]}.",
                "Fit them to it: python -m toolscout.finetune.fit_category",
            )

    def key(self, server: Server, tools: Sequence[Tool]) -> str:
        """Changes whenever what is said here of a server could: for storing it."""
        return sha256_hex("\0".join([self._fingerprint, about(server), operations(tools)]))

    def guesses(self, servers: Sequence[tuple[Server, Sequence[Tool]]]) -> list[Guess]:
        """The category of each server with these tools. About 20 ms each on one core."""
        return self.head.guesses(vectors(self._encoder, servers)) if servers else []
