"""W3C trace context of a request: read from ``_meta`` or the HTTP header, checked, and passed on.

The protocol (2026-07-28, SEP-414) has ``traceparent`` and ``tracestate`` in a request's ``_meta`` without a prefix.
``baggage`` is not passed on: it holds what its writer meant for services of its own, and upstreams are foreign code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Carrier = dict[str, str]
"""``traceparent``, and ``tracestate`` where there is one. Empty: no trace."""

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
KEYS = (TRACEPARENT, TRACESTATE)

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MOST_STATE = 512
_MOST_MEMBERS = 32
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
"""key=value of `tracestate` by the grammar of W3C Trace Context, section 3.3.1."""


def valid_carrier(source: Mapping[str, Any] | None) -> Carrier:
    """The trace context in ``source``; empty where there is none or it is malformed."""
    parent = source.get(TRACEPARENT) if source else None
    if source is None or not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        return {}
    state = source.get(TRACESTATE)
    if isinstance(state, str) and _is_state(state):
        return {TRACEPARENT: parent, TRACESTATE: state}
    return {TRACEPARENT: parent}


def _is_state(text: str) -> bool:
    """Whether it is a list of vendors' states, each vendor once; else none of it is passed on."""
    members = [m for member in text.split(",") if (m := member.strip(" \t"))]  # the grammar allows empty ones
    keys = {member.split("=", 1)[0] for member in members}
    return (
        len(text) <= _MOST_STATE
        and 0 < len(members) <= _MOST_MEMBERS
        and len(keys) == len(members)
        and all(map(_MEMBER.fullmatch, members))
    )


def meta_carrier(ctx: Any) -> Carrier:
    """The trace context in the request's ``_meta``."""
    meta = (ctx.params or {}).get("_meta")
    return valid_carrier(meta) if isinstance(meta, Mapping) else {}


def header_carrier(ctx: Any) -> Carrier:
    """The trace context in the headers of the HTTP request that brought the message."""
    headers = getattr(ctx.request, "headers", None)
    return valid_carrier(headers) if headers is not None else {}


def carrier_of(ctx: Any) -> Carrier:
    """The message's own trace context, else that of the HTTP request."""
    return meta_carrier(ctx) or header_carrier(ctx)


def trace_id(carrier: Carrier) -> str:
    """The trace's id, 32 hex digits; empty where there is no trace."""
    return carrier[TRACEPARENT].split("-")[1] if carrier else ""
