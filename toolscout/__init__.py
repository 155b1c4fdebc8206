"""Toolscout: one MCP server that finds, writes and makes the calls to all the others."""

__version__ = "0.1.0"
