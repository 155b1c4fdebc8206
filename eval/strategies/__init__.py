"""Which tools to put into the prompt."""
