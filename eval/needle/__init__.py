"""One tool in pools that grow."""
