"""A job's settings: read typed, written; the only place of Hadoop's property names."""
