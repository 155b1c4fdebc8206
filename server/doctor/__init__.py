"""What works here, what does not, and what to do about it."""
