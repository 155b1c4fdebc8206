"""What makes calls: one file a step, in the order generate, fill, evolve, translate, call."""
