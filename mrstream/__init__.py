"""Hadoop Streaming without Hadoop: the one name below which everything can be imported."""
