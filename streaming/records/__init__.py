"""Records, partitions and orders as plain values."""
