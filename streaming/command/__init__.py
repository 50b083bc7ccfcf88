"""The command line, as Hadoop reads it."""
