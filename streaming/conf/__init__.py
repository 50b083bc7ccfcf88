"""A job's settings: read typed, written; nothing else asks for Hadoop's properties by name."""
