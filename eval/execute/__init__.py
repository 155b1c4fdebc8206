"""Calls made for real, several trials a request."""
