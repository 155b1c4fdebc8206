"""The AST rules under the name that measuring knows them by; they live in the core, where training reads them too."""

from __future__ import annotations

from toolscout.ast_match import (
    OMITTED,
    MadeCall,
    Match,
    argument_matches,
    call_matches,
    match_calls,
    names_match,
    standardise,
    values_match,
)

__all__ = [
    "OMITTED",
    "MadeCall",
    "Match",
    "argument_matches",
    "call_matches",
    "match_calls",
    "names_match",
    "standardise",
    "values_match",
]
