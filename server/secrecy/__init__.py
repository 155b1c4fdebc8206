"""Secrets: resolved late, and blanked out of whatever is told."""
