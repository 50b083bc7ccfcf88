"""A master's end of the copies of its log: compared before it serves, then kept in step."""
