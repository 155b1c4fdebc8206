"""The kinds of fuzzing, and how to run one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given
from hypothesis import seed as seeded
from hypothesis import settings as hypothesis_settings
from hypothesis.strategies import SearchStrategy

from fuzzing.bounds import Record, recorded

Check = Callable[[Any], None]


@dataclass(frozen=True)
class Kind:
    """One kind: its cases, and a context that gives the check of a case. ``share``: of all cases, by weight."""

    name: str
    cases: SearchStrategy[Any]
    checking: Callable[[], AbstractContextManager[Check]]
    share: int = 1


@contextmanager
def _as_is(check: Check) -> Iterator[Check]:
    yield check


MODULES = ("frames", "engine", "process", "http", "schemas", "catalogue", "config")


def kind_of(name: str) -> Kind:
    """The kind that a module of this folder defines: its ``cases``, ``check`` or ``checking``, ``SHARE``."""
    module = import_module(f"fuzzing.{name}")
    checking = getattr(module, "checking", None) or (lambda: _as_is(module.check))
    return Kind(name, module.cases, checking, getattr(module, "SHARE", 1))


def run(kind: Kind, count: int, seed: int, record: Record) -> None:
    """``count`` cases of a kind. Faults go into the record; the first one ends nothing."""
    left = count
    with kind.checking() as check:

        def one(case: Any) -> None:
            nonlocal left
            if left > 0:
                left -= 1
                with recorded(record, kind.name, case):
                    check(case)

        # Hypothesis ends early where it has seen all that a strategy gives, or discards much: then on with another seed
        while left > 0:
            options = hypothesis_settings(
                max_examples=min(left, 2000),
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
                verbosity=Verbosity.quiet,
            )
            before = left
            seeded(seed)(options(given(kind.cases)(one)))()
            seed += 1
            if left == before:
                break
