"""Known MCP clients: find what they have configured, take it over, and add Toolscout to them."""
