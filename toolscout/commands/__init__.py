"""The commands of the command line, one file a subject. Nothing heavy is imported before a command needs it."""
