"""Whose state an upstream holds: a page that is open, a folder that was chosen, a session at a remote server."""

from __future__ import annotations

from contextvars import ContextVar

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""The client for which calls are made now; empty for the one of stdio, for ourselves, and for all that say nothing by
which one could be told from another. Each has upstreams of its own."""
