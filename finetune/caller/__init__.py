"""Fine-tuning of the call generator: rows to tokens, LoRA training, export."""
