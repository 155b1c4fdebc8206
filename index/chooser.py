"""Which of a few tools serves a request, or that none does: by the encoder alone.

Among ten tools drawn at random the encoder finds the right one more often than language models of a billion parameters
do, in a hundredth of their time. So the models that run in this process only write the arguments.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from toolscout.index.document import query_text, tool_text
from toolscout.index.encoder import Encoder
from toolscout.index.fusion import SearchParams, params_for
from toolscout.records import Server, Tool

Floats = npt.NDArray[np.float32]

TERMS = ("cosine", "none", "nothing", "size")
"""What ``SearchParams.choice`` weighs. A tool's logit is ``cosine`` times its cosine with the request; that of none is
``none`` + ``nothing`` times the request's cosine with the document for no tool + ``size`` times the log of how many
tools there are."""

_UNFITTED = {"cosine": 15.0, "none": 4.0, "nothing": 0.0, "size": 0.0, "none_at": 0.9}
_KEPT = 4096


class Chooser:
    """The encoder's choice among a few tools. Safe to share between threads; vectors of tools are kept."""

    def __init__(self, encoder: Encoder, params: SearchParams | None = None) -> None:
        self.encoder = encoder
        self.params = {**_UNFITTED, **(params or params_for(encoder)).choice}
        self._vectors: OrderedDict[str, Floats] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def none_at(self) -> float:
        """P(none) from which no tool is chosen."""
        return self.params["none_at"]

    def odds(self, task: str, tools: Sequence[Tool], servers: Sequence[Server | None] = ()) -> list[float]:
        """P(tool) for each tool, then P(none of them); they sum to 1. ``servers`` are the tools', where known."""
        cosines, nothing = self.cosines(task, tools, servers)
        return probabilities(logits(cosines, nothing, self.params))

    def cosines(
        self, task: str, tools: Sequence[Tool], servers: Sequence[Server | None] = ()
    ) -> tuple[list[float], float]:
        """Cosines of the request with each tool, and with the document for no tool (0 if the encoder has none)."""
        known = list(servers) or [None] * len(tools)
        texts = [tool_text(tool, server) for tool, server in zip(tools, known, strict=True)]
        nothing = str(getattr(getattr(self.encoder, "card", None), "nothing", "") or "")
        vectors = self._documents([*texts, nothing] if nothing else texts)
        query = self.encoder.encode([query_text(task)], kind="query")[0]
        found = [float(v @ query) for v in vectors]
        return found[: len(tools)], found[-1] if nothing else 0.0

    def _documents(self, texts: Sequence[str]) -> list[Floats]:
        with self._lock:
            found = {text: self._vectors[text] for text in texts if text in self._vectors}
        fresh = [text for text in dict.fromkeys(texts) if text not in found]
        if fresh:
            found |= dict(zip(fresh, self.encoder.encode(fresh), strict=True))
        with self._lock:
            for text in texts:
                self._vectors[text] = found[text]
                self._vectors.move_to_end(text)
            while len(self._vectors) > _KEPT:
                self._vectors.popitem(last=False)
        return [found[text] for text in texts]


def logits(cosines: Sequence[float], nothing: float, params: dict[str, float]) -> list[float]:
    """Of each tool, then of none of them."""
    none = params["none"] + params["nothing"] * nothing + params["size"] * math.log(max(1, len(cosines)))
    return [params["cosine"] * c for c in cosines] + [none]


def probabilities(values: Sequence[float]) -> list[float]:
    """Softmax."""
    top = max(values)
    weights = [math.exp(v - top) for v in values]
    total = sum(weights)
    return [w / total for w in weights]
