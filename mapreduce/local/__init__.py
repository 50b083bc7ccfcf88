"""A job on this machine, and what can be done about one that failed here."""
