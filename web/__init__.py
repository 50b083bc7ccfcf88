"""Doors over HTTP and pages in a browser."""
