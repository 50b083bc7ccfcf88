"""Where a segment is: one shape from the master to whoever fetches it."""

from __future__ import annotations

from mrstream.cluster.wire.messages import Message


class SegmentAt(Message, frozen=True):
    """Where the output of one map is, on its way from the master to the reduces of a worker."""

    map_index: int
    attempt_id: str
    worker_id: str
    address: str = ""
    """Where that worker gives segments; the worker of a reduce fills it in."""
    path: str = ""
    """Given if it is on this host: then it is read from there."""
