"""An attempt at a task: one process that drives the stages, and what it tells."""
