"""From a task and candidate tools to a call that validates."""
