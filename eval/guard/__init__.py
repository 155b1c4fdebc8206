"""Poisoned and honest tools before the scanner and in the ranking."""
