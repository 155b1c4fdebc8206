"""How various sets of requests are, side by side."""
