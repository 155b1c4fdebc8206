"""Tools for the turns of API-Bank's dialogues."""
