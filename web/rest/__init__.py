"""Job history as Hadoop serves it, metrics, health."""
