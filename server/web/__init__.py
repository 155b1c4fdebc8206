"""Toolscout over HTTP."""
