"""Servers that do the same, compared."""
