"""Odd input of every kind, and what must hold for it: no exception but the documented ones, in bounded time.

Used by ``tests/test_fuzz.py`` (a few hundred cases) and ``benchmarks/fuzz.py`` (as many as you like); see
``docs/FUZZING.md``.
"""
