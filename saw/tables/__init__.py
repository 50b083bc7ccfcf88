"""The aggregators: what an emit goes into; states that pack, merge and give rows."""
