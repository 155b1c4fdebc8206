"""Requests that take several calls."""
