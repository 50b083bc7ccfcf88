"""The pages of the monitor, one a file."""
