"""The built-in catalog as a new user meets it, and below twenty installed servers."""
