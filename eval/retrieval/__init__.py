"""The product's search over pools of tools, and what it misses."""
