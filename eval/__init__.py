"""Measures retrieval and calls, and writes the reports."""
