"""A sandbox around a configured upstream: what it may see, how it is started in there, how its package gets in."""
