"""The built-in catalog: a dated, read-only file of facts and vectors of the MCP servers that can be installed."""
