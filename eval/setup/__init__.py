"""A user's own servers: what can be found, told apart and read."""
