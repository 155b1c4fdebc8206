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
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")


def valid_carrier(source: Mapping[str, Any] | None) -> Carrier:
    """The trace context in ``source``; empty where there is none or it is malformed."""
    parent = source.get(TRACEPARENT) if source else None
    if source is None or not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        return {}
    state = source.get(TRACESTATE)
    if isinstance(state, str) and _TRACESTATE.fullmatch(state):
        return {TRACEPARENT: parent, TRACESTATE: state}
    return {TRACEPARENT: parent}


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
