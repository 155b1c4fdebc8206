from mcp.runner import serve

serve("current", ["now", "then"])
