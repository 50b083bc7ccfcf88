"""The submitter, and what it asks about jobs of a cluster."""
