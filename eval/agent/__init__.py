"""Agents on tasks with checkable end states, in three arms."""
