"""The catalogue of servers and tools, and the search over it."""
