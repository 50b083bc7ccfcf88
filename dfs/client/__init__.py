"""The client library: names, readers and writers, retries, fsspec."""
