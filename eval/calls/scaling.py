"""`eval scaling`: results of `eval calls` for models trained on growing shares of the data, as one curve a split."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from toolscout.errors import BadInput, NotFound
from toolscout.eval.calls.rates import KEYS
from toolscout.records import JsonObject

SAME = {
    "rows": "rows", "tools": "tools", "seed": "seeds", "decoding": "ways of decoding", "exemplars": "exemplars",
    "without_gold": "candidates", "choice": "ways to choose", "chooses": "ways to choose", "encoder": "encoders",
    "temperature": "temperatures", "sized": "candidates",
}  # fmt: skip
"""What a result of `eval calls` says of itself that has to be the same in all; older results say nothing."""


def scaling(runs: Sequence[str]) -> JsonObject:
    """``{points: [{share, model, n, candidates, overall, by_split, intervals}]}`` from ``SHARE=FILE`` pairs, smallest
    share first; of results without intervals these are None.

    Raises NotFound for a file that does not exist, BadInput for a pair that is none, a share given twice, a file
    that is no result of `eval calls`, or results that differ in more than the model (`SAME`).
    """
    points: list[JsonObject] = []
    for run in runs:
        text, equals, name = run.partition("=")
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if not equals or not math.isfinite(share) or share < 0:
            raise BadInput(f"{run} is not SHARE=FILE.", "For example: --runs 0.1=tenth.json 1=whole.json")
        points.append({"share": share, **_result(Path(name))})
    points.sort(key=lambda p: p["share"])
    shares = [p["share"] for p in points]
    if twice := [share for share in shares if shares.count(share) > 1]:
        raise BadInput(f"The share {twice[0]:g} is given twice.", "Give one result for each share.")
    kinds = {(p["n"], p["candidates"]) for p in points}
    if len(kinds) > 1:
        raise BadInput(
            f"These results differ in rows or candidates: {', '.join(f'{n} rows of {c}' for n, c in sorted(kinds))}.",
            "Measure every model with the same files, --candidates, --limit and --seed.",
        )
    of = [known for p in points if (known := p.pop("of"))]
    for key in SAME:
        if len({json.dumps(one.get(key), sort_keys=True) for one in of}) > 1:
            raise BadInput(
                f"These results differ in more than the model: their {SAME[key]} are not the same.",
                "Measure every model with the same files, --candidates, --limit, --seed and --decoding.",
            )
    weights = [json.dumps(one["weights"]) for one in of if one.get("weights")]
    if len(set(weights)) < len(weights):
        raise BadInput("Two of these results are of the same weights.", "Give each share the result of its own model.")
    return {"points": points}


def curves(result: JsonObject) -> dict[str, list[tuple[float, JsonObject]]]:
    """A curve for all rows, and one for each split where there are several; rates with ``n`` and ``intervals``."""
    points = result["points"]
    splits = list(dict.fromkeys(name for p in points for name in p["by_split"]))
    found = {"all": [(p["share"], {"n": p["n"], **p["overall"], "intervals": _around(p, "overall")}) for p in points]}
    if len(splits) > 1:
        for name in splits:
            found[name] = [
                (p["share"], {**p["by_split"][name], "intervals": _around(p, "by_split").get(name)})
                for p in points
                if name in p["by_split"]
            ]
    return found


def _around(point: JsonObject, key: str) -> JsonObject:
    """Intervals of all rows or of the splits; none in results of older versions."""
    return (point.get("intervals") or {}).get(key) or {}


def _result(path: Path) -> JsonObject:
    try:
        found = json.loads(path.read_text("utf-8"))
        kept = {key: found[key] for key in ("n", "model", "candidates", "overall", "by_split")}
        kept["of"] = (found.get("of") or {}).get("run") or {}
        if not isinstance(kept["of"], dict):
            raise TypeError("of")
        parts = [kept["overall"], *kept["by_split"].values()]
        if any(key not in part for part in parts for key in KEYS):
            raise KeyError("rates")
        around = found.get("intervals")  # results of older versions have none
        kept["intervals"] = {key: around[key] for key in ("overall", "by_split")} if around else None
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Give what eval calls --json wrote.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.", "Give what eval calls --json wrote.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path} is no result of eval calls.", "Give what eval calls --json wrote.") from None
    if not kept["n"]:
        raise BadInput(f"{path} has no rows with gold.", "Measure without --without-gold.")
    return kept
