"""Schema migrations of the catalogue (alembic), applied when a catalogue is opened."""
