"""A worker: the attempts of a host, their segments, their files."""
