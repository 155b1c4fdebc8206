"""Small results of experiments, in the form that each command writes: what plots are drawn from."""

from __future__ import annotations

from typing import Any

FOREIGN = "an $odd^{ name$ <b> of a server in \u65e5\u672c\u8a9e that somebody made far too long to be shown"
"""Read as a formula it is broken, and not all of its letters are in the plots' font."""


def plans() -> dict[str, Any]:
    """`eval plan`: lengths of two to five calls."""
    names = ("graph", "last", "tools", "node_f1", "edge_f1")

    def part(n: int, *values: float | None) -> dict[str, Any]:
        around = [None if v is None or n < 2 else [max(0, v - 0.1), min(1, v + 0.08)] for v in values]
        found = dict(zip(names, values, strict=True))
        return {"n": n, **found, "intervals": dict(zip(names, around, strict=True))}

    return {
        "n": 80,
        "overall": part(80, 0.42, 0.6, 0.66, 0.83, 0.72),
        "by_steps": {
            "1": part(1, 1.0, 1.0, 1.0, 1.0, None),
            "2": part(40, 0.55, 0.62, 0.71, 0.86, 0.8),
            "3": part(29, 0.3, 0.58, 0.6, 0.84, 0.7),
            "5": part(10, 0.1, 0.5, 0.4, 0.77, 0.61),
        },
        "problems": {
            "no plan": 3, "cycle": 0, "reference to no call": 1,
            "other tools": 23, "other arguments": 17, "other edges": 3,
        },
    }  # fmt: skip


def executed(servers: int = 6) -> dict[str, Any]:
    """`eval execute`: five trials."""

    def calls(made: int, well: int) -> dict[str, Any]:
        return {"made": made, "went_well": well, "success_rate": round(well / made, 4) if made else None}

    keys = [f"pass@{k}" for k in range(1, 6)]
    return {
        "n": 30,
        "calls": calls(150, 120),
        "pass": dict(zip(keys, (0.61, 0.7, 0.74, 0.77, 0.79), strict=True)),
        "intervals": dict(zip(keys, ([p - 0.14, p + 0.12] for p in (0.61, 0.7, 0.74, 0.77, 0.79)), strict=True)),
        "failures": {"wrong outcome": 21, "parameter_error": 12, "not made: may write": 6, "session_error": 1},
        "by_server": {
            FOREIGN if n == 1 else f"market/server-{n}": calls(10 * n, 10 * n - n * n // 2) for n in range(servers)
        },
    }  # fmt: skip


def agent(splits: int = 3) -> dict[str, Any]:
    """`eval agent`: three arms."""
    arms = ("all", "find", "bootstrap")

    def part(n: int, at: int, arm: int) -> dict[str, Any]:
        success = 0.35 + 0.1 * arm + 0.05 * at
        return {
            "n": n, "success": success, "interval": [success - 0.12, success + 0.12] if n > 1 else None,
            "steps": 3.4 - arm / 2 + at, "tokens": {"prompt": 21000.0 / (1 + 3 * arm) + at * 900, "completion": 350.0},
        }  # fmt: skip

    names = [FOREIGN if n == 2 else f"server-{n}" for n in range(splits)]
    return {
        "arms": {arm: part(71, 0, number) for number, arm in enumerate(arms)},
        "by_split": {
            arm: {name: part(24 - 23 * (at == 0), at, number) for at, name in enumerate(names)}
            for number, arm in enumerate(arms)
        },
    }


def servers(called: bool = True) -> dict[str, Any]:
    """`eval servers`: groups of 9, 3 and 2 servers."""

    def group(name: str, count: int) -> dict[str, Any]:
        rows = [
            {
                "server_id": FOREIGN if n == 1 else f"market/weather-{n}", "calls": 12 * n * called,
                "outcomes": 6 * n * called, "right": 0.5 if n and called else None,
                "success_rate": round(1 - 0.08 * n, 3) if n and called else None,
                "quality": {"score": 0.9 - 0.06 * n if n != 2 else None}, "tokens": 400 * (n + 1),
            }
            for n in range(count)
        ]  # fmt: skip
        return {"name": name, "servers": rows, "best": {}, "pairs": []}

    return {"groups": [group("get_forecast (market/weather-0 and 8 more)", 9), group("search", 3), group(FOREIGN, 2)]}


def calls(ast: float = 0.5, n: int = 310) -> dict[str, Any]:
    """`eval calls`: three splits, two marketplaces, with intervals."""

    def part(shift: float, ast_known: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        shares = {"tool": 0.95 + shift, "param": 0.8 + shift, "ast": ast + shift if ast_known else None}
        around = {key: None if v is None else [max(0.0, v - 0.06), min(1.0, v + 0.05)] for key, v in shares.items()}
        return {**shares, "schema_valid": 1.0}, {**around, "schema_valid": [0.98, 1.0]}

    splits = {"seen": part(0), "unseen_tool": part(-0.1), FOREIGN: part(-0.02, ast_known=False)}
    markets = {"smithery": part(0.01), "glama": part(-0.05)}
    whole = part(-0.03)

    def counted(parts: dict[str, Any]) -> dict[str, Any]:
        return {name: {"n": n // 3, **rates} for name, (rates, _) in parts.items()}

    return {
        "n": n, "model": "m", "candidates": 10, "overall": whole[0],
        "by_split": counted(splits), "by_marketplace": counted(markets),
        "by_marketplace_split": {market: counted(splits) for market in markets},
        "by_lang": {"de": {"n": 4, **whole[0]}, "en": {"n": n - 4, **whole[0]}},
        "intervals": {
            "overall": whole[1],
            "by_split": {name: around for name, (_, around) in splits.items()},
            "by_marketplace": {name: around for name, (_, around) in markets.items()},
        },
        "abstention": {"right_refusal_rate": None, "false_refusal_rate": 0.0},
        "seconds": {"p50": 1.0, "p95": 2.0}, "tokens": {"prompt": 1.0, "cached": None, "completion": 2.0},
    }  # fmt: skip


def retrieval(splits: int = 3) -> dict[str, Any]:
    """`eval retrieval`: what its plot looks at."""

    def part(n: int, at: float) -> dict[str, Any]:
        found = {"recall@1": 0.4 + at, "recall@5": 0.7 + at, "recall@10": 0.8 + at} if n else {}
        keys = ("recall@1", "recall@5", "recall@10")
        return {
            "n": n,
            "strict": {key: found.get(key) for key in keys},
            "equivalent": {key: found[key] + 0.05 if n else None for key in keys},
        }

    names = [FOREIGN if n == 1 else f"split-{n}" for n in range(splits)]
    return {**part(295 * bool(splits), 0), "by_split": {name: part(98, 0.04 * n) for n, name in enumerate(names)}}
