"""Shares of outcomes in groups: Tool, Param, AST and validity, and their 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from toolscout.eval.metrics import share, wilson
from toolscout.eval.rows import grouped
from toolscout.records import JsonObject

KEYS = ("tool", "param", "ast", "schema_valid")


class Judged(Protocol):
    """An outcome of `eval calls`; a verdict is None where the row does not ask for it."""

    @property
    def id(self) -> str:
        """The row's id."""
        ...

    @property
    def split(self) -> str:
        """The row's split."""
        ...


Groups = Mapping[str, Sequence[Judged]]


def rates(outcomes: Sequence[Judged]) -> dict[str, float | None]:
    """The four shares, each over the rows that ask for it; None where there are none."""
    return {key: _rounded(share(_flags(outcomes, key))) for key in KEYS}


def around(outcomes: Sequence[Judged]) -> dict[str, list[float] | None]:
    """Wilson's interval of each share; None where there is none."""
    found: dict[str, list[float] | None] = {}
    for key in KEYS:
        flags = _flags(outcomes, key)
        found[key] = wilson(sum(flags), len(flags)) if flags else None
    return found


def grouped_rates(outcomes: Sequence[Judged], market_of: Mapping[str, str], lang_of: Mapping[str, str]) -> JsonObject:
    """The result's groups and, under ``intervals``, the same groups' intervals.

    :param market_of: marketplace of a row, by its id; ``lang_of``: its language.
    """
    groups: dict[str, Groups] = {
        "by_split": grouped(outcomes, lambda o: o.split),
        "by_lang": grouped(outcomes, lambda o: lang_of.get(o.id, "unknown")),
        "by_marketplace": grouped(outcomes, lambda o: market_of.get(o.id, "unknown")),
    }
    crossed = {name: grouped(rows, lambda o: o.split) for name, rows in groups["by_marketplace"].items()}
    return {
        "overall": rates(outcomes),
        **{name: _each(group, _counted) for name, group in groups.items()},
        "by_marketplace_split": {name: _each(group, _counted) for name, group in crossed.items()},
        "intervals": {
            "overall": around(outcomes),
            **{name: _each(group, around) for name, group in groups.items()},
            "by_marketplace_split": {name: _each(group, around) for name, group in crossed.items()},
        },
    }


def _each(groups: Groups, of: Callable[[Sequence[Judged]], Mapping[str, Any]]) -> JsonObject:
    return {name: of(rows) for name, rows in groups.items()}


def _counted(outcomes: Sequence[Judged]) -> JsonObject:
    return {"n": len(outcomes), **rates(outcomes)}


def _flags(outcomes: Iterable[Judged], key: str) -> list[bool]:
    return [bool(flag) for flag in (getattr(o, key) for o in outcomes) if flag is not None]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
