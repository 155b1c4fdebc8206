"""How well ``probability`` separates requests that some tool serves from those that none does.

Two errors trade off against each other as the threshold moves: a *wrong refusal* (a request with gold is told that
nothing fits) and a *false offer* (a request without gold is offered tools). A request is refused when its probability
is below the threshold.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from toolscout.eval.metrics import auroc, mean, wilson
from toolscout.records import JsonObject

BUDGETS = (0.01, 0.02, 0.03, 0.05)
"""Shares of wrong refusals at which false offers are reported."""

BINS = 10


def refusal_report(
    answerable: Sequence[float], unanswerable: Sequence[float], threshold: float | None, served: Sequence[bool] = ()
) -> JsonObject | None:
    """Curve, points of interest and calibration; None without rows of both kinds.

    Args:
        answerable, unanswerable: ``probability`` of the rows with gold and of those without.
        threshold: the default one, at which the shares are given again with 95 % intervals (Wilson).
        served: of each answerable row, whether an offered tool serves it: the second, harder reading of calibration.
    """
    if not answerable or not unanswerable:
        return None
    right, wrong = sorted(answerable), sorted(unanswerable)
    report: JsonObject = {
        "answerable": len(right),
        "unanswerable": len(wrong),
        "auroc": _rounded(auroc(right, wrong)),
        "default": None if threshold is None else point_at(right, wrong, threshold, intervals=True),
        "at_wrong_refusals": {f"{budget:.2f}": best_within(right, wrong, budget) for budget in BUDGETS},
        "curve": curve(right, wrong),
        "calibration": {"answerable": calibration([*answerable, *unanswerable], [True] * len(right), len(wrong))},
    }
    if served:
        report["calibration"]["served"] = calibration([*answerable, *unanswerable], served, len(wrong))
    return report


def point_at(
    right: Sequence[float], wrong: Sequence[float], threshold: float, *, intervals: bool = False
) -> JsonObject:
    """``{threshold, wrong_refusals, false_offers}`` (shares); ``right`` and ``wrong`` are sorted."""
    refused, offered = bisect_left(right, threshold), len(wrong) - bisect_left(wrong, threshold)
    point: JsonObject = {
        "threshold": round(threshold, 4),
        "wrong_refusals": round(refused / len(right), 4),
        "false_offers": round(offered / len(wrong), 4),
    }
    if intervals:
        point["wrong_refusals_95"] = wilson(refused, len(right))
        point["false_offers_95"] = wilson(offered, len(wrong))
    return point


def best_within(right: Sequence[float], wrong: Sequence[float], budget: float) -> JsonObject:
    """The highest threshold that refuses at most ``budget`` of ``right`` (sorted): chosen on the rows it is shown for,
    so it is the best that this probability can do, not a promise."""
    allowed = math.floor(budget * len(right) + 1e-9)
    if allowed >= len(right):
        return point_at(right, wrong, 1.0)
    # all strictly below right[allowed] are refused: at most `allowed` of them
    return point_at(right, wrong, right[allowed])


def curve(right: Sequence[float], wrong: Sequence[float]) -> list[JsonObject]:
    """A point at every threshold that changes a decision, thresholds ascending; ``right`` and ``wrong`` are sorted.

    Where several thresholds give the same two shares the highest is shown."""
    points: list[JsonObject] = []
    # a threshold equal to a probability still offers that row, so every decision changes just above one
    for threshold in [*sorted({*right, *wrong}), math.nextafter(max(right[-1], wrong[-1]), math.inf)]:
        point = point_at(right, wrong, threshold)
        same = points and all(points[-1][key] == point[key] for key in ("wrong_refusals", "false_offers"))
        if same:
            points[-1] = point
        else:
            points.append(point)
    return points


def calibration(chances: Sequence[float], answered: Sequence[bool], without: int, bins: int = BINS) -> JsonObject:
    """Reliability of probabilities as ``{ece, brier, base_rate, bins: [{from, to, n, mean, share}]}``.

    ``answered`` are the outcomes of the first rows; the last ``without`` rows have no gold and come out false.
    ``ece`` is the expected calibration error over equal-width bins: the mean of |share right - mean probability|,
    weighed by rows (Naeini et al. 2015). ``brier`` is the mean squared error of the probability.
    """
    outcomes = [*map(bool, answered), *[False] * without]
    rows: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for chance, outcome in zip(chances, outcomes, strict=True):
        rows[min(int(chance * bins), bins - 1)].append((chance, outcome))
    table, error = [], 0.0
    for number, held in enumerate(rows):
        average, share = mean(c for c, _ in held), mean(float(o) for _, o in held)
        if average is not None and share is not None:
            error += len(held) * abs(share - average)
        table.append(
            {
                "from": round(number / bins, 4), "to": round((number + 1) / bins, 4), "n": len(held),
                "mean": _rounded(average), "share": _rounded(share),
            }
        )  # fmt: skip
    return {
        "ece": round(error / len(outcomes), 4),
        "brier": _rounded(mean((c - o) ** 2 for c, o in zip(chances, outcomes, strict=True))),
        "base_rate": _rounded(mean(map(float, outcomes))),
        "bins": table,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
