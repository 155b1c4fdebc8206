"""What is derived of a server on its way out: its category, and a summary for server-level search."""
