"""What keeps bad calls out: one file a filter, each with its threshold in the settings."""
