"""Other languages than English for a sentence encoder."""
