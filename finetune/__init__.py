"""Makes the models from the data: tool encoder and call generator."""
