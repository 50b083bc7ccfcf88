"""Stage 6: give reducers their partition of the segment files on this host.

Takes requests over bulk connections, each for one partition of several maps (a pair of hosts then
needs one request, not one a map); gives for each a head with its figures and the bytes as they lie
in the file, by sendfile. The receiver verifies them. Never holds a partition in memory.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable

from mrstream.cluster.errors import Corrupt
from mrstream.cluster.wire.messages import Message
from mrstream.cluster.wire.network import BulkStream
from mrstream.mapreduce.dataflow.segment import PartitionEntry, Reader

READERS_MAX = 128
"""Segment files kept open with their index: every reduce asks for every map's."""


class FetchSegments(Message, frozen=True):
    """Give me this partition of these map attempts' segments."""

    partition: int
    attempts: tuple[str, ...]


class SegmentHead(Message, frozen=True):
    """What follows: `length` bytes of one segment's partition; nothing if it is `missing`."""

    attempt: str
    length: int = 0
    records: int = 0
    raw_bytes: int = 0
    hadoop_bytes: int = 0
    missing: str = ""
    """Why there is nothing to send; the segment is gone for good."""


class SegmentServer:
    """Serves the segments that `find` knows: from attempt id to path, None for a stranger."""

    def __init__(self, find: Callable[[str], str | None]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Reader] = OrderedDict()
        self.bytes_sent = 0

    def serve(self, stream: BulkStream) -> None:
        """Answer one connection until it ends."""
        while True:
            request = stream.receive(FetchSegments)
            for attempt in request.attempts:
                self._send(stream, attempt, request.partition)

    def forget(self, attempt: str) -> None:
        """Close a segment file that is about to be deleted."""
        with self._lock:
            reader = self._open.pop(attempt, None)
            if reader is not None:
                reader.close()

    def _send(self, stream: BulkStream, attempt: str, partition: int) -> None:
        try:
            descriptor, entry = self._partition(attempt, partition)
        except (OSError, Corrupt) as error:
            stream.send(SegmentHead(attempt, missing=str(error)))
            return
        try:
            stream.send(
                SegmentHead(
                    attempt, entry.length, entry.records, entry.raw_bytes, entry.hadoop_bytes
                )
            )
            stream.send_file(descriptor, entry.offset, entry.length)
            self.bytes_sent += entry.length
        finally:
            os.close(descriptor)

    def _partition(self, attempt: str, partition: int) -> tuple[int, PartitionEntry]:
        """Return a descriptor of our own and where to read: the reader may be closed meanwhile."""
        with self._lock:
            reader = self._open.pop(attempt, None)
            if reader is None:
                path = self._find(attempt)
                if path is None:
                    raise FileNotFoundError(f"no segment of {attempt} is kept here")
                reader = Reader(path)
            self._open[attempt] = reader
            if len(self._open) > READERS_MAX:
                self._open.popitem(last=False)[1].close()
            if not 0 <= partition < reader.partitions:
                raise FileNotFoundError(
                    f"segment of {attempt} has {reader.partitions} partitions, none is {partition}"
                )
            return os.open(reader.path, os.O_RDONLY | os.O_CLOEXEC), reader.entries[partition]
