"""A job as data: its spec, its counters, how its records lie and are ordered."""
