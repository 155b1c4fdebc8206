"""The MCP server: ``find_tools``, ``suggest_call``, ``invoke``, and what a running instance needs."""
