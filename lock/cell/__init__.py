"""The cell's brain: nodes, locks, sessions, caching, fail-over. No IO, no clock, no chance."""
