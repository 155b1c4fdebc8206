"""How the signals of a candidate become one score, and the shape of the best scores a probability.

The score of a tool for a request is a weighted sum of

    tool       cosine of request and tool text
    words      BM25 over the best tool's BM25 for this request
    exemplar   best cosine of the request and an exemplar of the tool less REQUESTS_ALIKE, as far as it exceeds ``tool``
    name       1 if the request spells the tool's name or id

The parameters belong to an encoder and are kept in its folder as ``search.json``; ``finetune/fit_search.py`` fits them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import StorageError
from toolscout.files import replace_file

if TYPE_CHECKING:
    from toolscout.index.encoder import Encoder

Floats = npt.NDArray[np.float32]

PARAMS_FILE = "search.json"

REQUESTS_ALIKE = 0.2
"""Any two requests are this much more alike than a request and a tool's text: without taking it off, tools that have
exemplars push away those that have none (equivalent recall@1 0.30 instead of 0.36 with exemplars for a third)."""

SIGNALS = ("tool", "words", "exemplar", "name")
SHAPE = ("tool", "server", "coverage", "pool")
KIND = ("tool", "nothing")


FAVOUR = 0.15
"""Score that a tool gains because it can be called at once. A prior, not fitted: it decides between near equals."""


@dataclass(frozen=True)
class SearchParams:
    """All fitted numbers of the search. ``signals`` weighs ``SIGNALS``; ``shape`` weighs ``SHAPE`` and ``bias`` is that
    logistic regression's constant, as ``kind`` and ``kind_bias`` are for ``KIND`` (``kind`` empty: an encoder that
    knows no such document); ``threshold`` is the probability under which nothing is offered. Answers stop where
    the score falls more than ``drop`` under the best, and grow beyond the limit while it falls less than ``tie``."""

    signals: dict[str, float] = field(
        default_factory=lambda: {
            "tool": 1.0,
            "words": 0.4,
            "exemplar": 1.0,
            "name": 0.5,
        }
    )
    shape: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SHAPE, 0.0))
    bias: float = 0.0
    kind: dict[str, float] = field(default_factory=dict)
    kind_bias: float = 0.0
    threshold: float = 0.0
    small_threshold: float = 0.0
    """The threshold over fewer than ``SMALL_POOL`` tools: there a refusal hides a tool that is plainly there, and a
    wrong offer costs little."""
    calibration: dict[str, float] = field(default_factory=dict)
    """Platt's scaling (1999) of the log odds: ``slope`` and ``shift`` over large pools, ``small_slope`` and
    ``small_shift`` over fewer than ``SMALL_POOL`` tools; without it they stay as they are."""
    drop: float = 10.0
    tie: float = 0.0
    choice: dict[str, float] = field(default_factory=dict)
    """What the choice among a few tools weighs (``chooser.TERMS``); ``none_at``: P(none) from which none is chosen."""
    fitted: str = "not fitted"
    """What the numbers were fitted on, by which command."""


def params_for(encoder: Encoder) -> SearchParams:
    """The parameters in the encoder's folder; unfitted ones for an encoder that has none."""
    folder = getattr(encoder, "folder", None)
    if isinstance(folder, Path) and (folder / PARAMS_FILE).is_file():
        return read_params(folder / PARAMS_FILE)
    return SearchParams()


def read_params(path: Path) -> SearchParams:
    """Parameters from a file. Raises StorageError if it cannot be read."""
    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        known = {f.name for f in fields(SearchParams)}
        params = SearchParams(**{k: v for k, v in values.items() if k in known})
        if (
            not set(params.signals) <= set(SIGNALS)
            or not set(params.shape) <= set(SHAPE)
            or set(params.kind) - set(KIND)
        ):
            raise ValueError("other signals than this version's")
        # What an encoder does not give, its file need not weigh.
        params.signals.update({name: 0.0 for name in SIGNALS if name not in params.signals})
        params.shape.update({name: 0.0 for name in SHAPE if name not in params.shape})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StorageError(
            f"The search parameters {path} cannot be read: {error}.", "Install the encoder again."
        ) from None
    return params


def write_params(path: Path, params: SearchParams) -> None:
    """Write parameters as JSON."""
    replace_file(path, json.dumps(asdict(params), indent=2) + "\n")


def fuse(signals: dict[str, Floats], params: SearchParams) -> Floats:
    """One score a candidate: float32 [n] from as many float32 [n] as there are ``SIGNALS`` (missing ones count 0)."""
    total = np.zeros(len(signals["tool"]), dtype=np.float32)
    for name, weight in params.signals.items():
        if weight and name in signals:
            total += np.float32(weight) * signals[name]
    return total


def shape(best: dict[str, float], coverage: float, pool: int, nothing: float) -> dict[str, float]:
    """What abstention looks at: ``best`` are the first candidate's signals, ``coverage`` the share (by idf) of the
    request's words that the first ones hold, ``pool`` how many tools there are: many likelier hold a fitting one;
    ``nothing`` is how near the request is to the document that stands for no tool.

    The request's length is left out on purpose: unanswerable requests of test files are shorter than answerable ones,
    so it would look like the best feature, and refuse three of four terse real ones. Margins between the scores helped
    the test file by two points of AUROC and made answers over a handful of tools erratic. ``nothing`` brings some of
    the length back in, since the encoder learnt it from such files: the fit sets terse requests against it.
    """
    return {
        "tool": best["tool"] + best.get("exemplar", 0.0),
        "server": best["server"],
        "coverage": coverage,
        "pool": float(np.log1p(pool)),
        "nothing": nothing,
        "name": best.get("name", 0.0),
    }


DOUBT = 0.5
"""Probability under which what is offered likelier does not serve the request than serves it."""

SMALL_POOL = 1000
"""Tools from which on a pool counts as large."""

UNSHARED_PROBABILITY = 0.05
"""Over a large pool a request that shares no word with the best tools is taken for nonsense or for a language that
neither pool nor encoder knows: the encoder still finds something near, and `probability` alone would believe it.
With the untuned encoder none of 3,388 answerable requests over 11,363 tools (126 of them not in Latin script) was like
that, of 100 unanswerable ones six; not counted again since. Small pools hold too few words to say so."""

UNSHARED_COSINE = 0.6
"""A request this near to a tool (or to one of its exemplars) is believed even so."""


def probability(features: dict[str, float], params: SearchParams) -> float:
    """Probability that one of the first tools serves the request: that a tool could at all, times that this pool
    has it, calibrated. They are two questions: small talk is far from every pool, a request for weather is near a
    pool of maps."""
    chance = logistic(params.bias, params.shape, features)
    if params.kind:
        chance *= logistic(params.kind_bias, params.kind, features)
    few = np.expm1(features["pool"]) < SMALL_POOL - 0.5
    chance = calibrated(chance, params.calibration, "small_" if few else "")
    if few or features["coverage"] > 0 or features["tool"] >= UNSHARED_COSINE:
        return chance
    return min(chance, UNSHARED_PROBABILITY)


def log_odds(chance: float) -> float:
    """Logit, finite for 0 and 1 too."""
    chance = min(max(chance, 1e-12), 1 - 1e-12)
    return float(np.log(chance / (1 - chance)))


def calibrated(chance: float, calibration: dict[str, float], prefix: str = "") -> float:
    """A probability after `SearchParams.calibration`."""
    scaled = calibration.get(f"{prefix}slope", 1.0) * log_odds(chance) + calibration.get(f"{prefix}shift", 0.0)
    return float(1.0 / (1.0 + np.exp(-np.clip(scaled, -40, 40))))


def logistic(bias: float, weights: dict[str, float], features: dict[str, float]) -> float:
    """Probability of a logistic regression; a feature that is missing counts 0."""
    total = bias + sum(weight * features.get(name, 0.0) for name, weight in weights.items())
    return float(1.0 / (1.0 + np.exp(-np.clip(total, -40, 40))))


def offers(features: dict[str, float], chance: float, params: SearchParams) -> bool:
    """Whether a request of this probability is offered tools; one that spells the best tool's name always is."""
    if features.get("name"):
        return True
    return chance >= threshold_for(float(np.expm1(features["pool"])), params)


def doubtful(features: dict[str, float], chance: float) -> bool:
    """Whether an offer of this probability should be read before it is trusted."""
    return not features.get("name") and chance < DOUBT


def threshold_for(pool: float, params: SearchParams) -> float:
    """The probability under which a request over so many tools is refused."""
    return params.small_threshold if pool < SMALL_POOL - 0.5 else params.threshold


def cut(scores: Floats, limit: int, params: SearchParams) -> int:
    """How many of the scores (descending) to offer: fewer than ``limit`` after a clear drop, up to twice as many
    while they are all but tied with the one at ``limit``."""
    if not len(scores):
        return 0
    count = int((scores[:limit] >= scores[0] - params.drop).sum())
    if count == limit:
        tied = scores[limit : 2 * limit] >= scores[limit - 1] - params.tie
        count += int(np.argmin(tied)) if not tied.all() else len(tied)
    return count
