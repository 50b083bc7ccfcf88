"""Pushed data that waits for its write request, in memory, under ids (GFS §3.1 step 3).

Bounded: the data used longest ago goes when room is needed, and whoever wanted it pushes again
(GFS-42). Safe for many threads; never touches a disk.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from mrstream.cluster.errors import Overloaded
from mrstream.dfs.errors import BadRequest, DataNotPushed


class PushBuffer:
    """Byte runs by id, least recently used first. Room is taken before the bytes arrive."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[bytes, bytearray] = OrderedDict()
        """What came whole; never changed after that, since forwards and writes read it."""
        self._held_bytes = 0
        """How much that is."""
        self._arriving_bytes = 0
        """Room that was given and is neither kept nor dropped. With what is held it is never more
        than the capacity: what is held goes first, then the newcomer is refused."""

    @property
    def used_bytes(self) -> int:
        """What is held or on its way."""
        with self._lock:
            return self._held_bytes + self._arriving_bytes

    def begin(self, size: int) -> bytearray:
        """Return room for data that is about to arrive; `keep` or `drop` it afterwards."""
        if not 0 <= size <= self._capacity_bytes:
            raise BadRequest(
                f"a push of {size} bytes; this server buffers {self._capacity_bytes} at most"
            )
        with self._lock:
            while self._held and self._held_bytes + self._arriving_bytes + size > (
                self._capacity_bytes
            ):
                _, oldest = self._held.popitem(last=False)
                self._held_bytes -= len(oldest)
            if self._arriving_bytes + size > self._capacity_bytes:
                raise Overloaded(
                    f"{self._arriving_bytes} bytes are being pushed to this server, {size} more do "
                    f"not fit into its buffer of {self._capacity_bytes}"
                )
            self._arriving_bytes += size
            assert self._held_bytes + self._arriving_bytes <= self._capacity_bytes
        return bytearray(size)

    def keep(self, data_id: bytes, data: bytearray) -> None:
        """Hold what has arrived whole under its id."""
        with self._lock:
            self._arriving_bytes -= len(data)
            assert self._arriving_bytes >= 0, "room was given back twice"
            old = self._held.pop(data_id, None)
            if old is not None:
                self._held_bytes -= len(old)
            self._held[data_id] = data
            self._held_bytes += len(data)

    def drop(self, data: bytearray) -> None:
        """Give back the room of data that did not arrive whole."""
        with self._lock:
            self._arriving_bytes -= len(data)

    def get(self, data_id: bytes, size: int) -> bytearray:
        """Return the data; it stays for a repeat of the request."""
        with self._lock:
            data = self._held.get(data_id)
            if data is not None:
                self._held.move_to_end(data_id)
        if data is None:
            raise DataNotPushed(f"data {data_id.hex()} is not (or no longer) in the buffer")
        if len(data) != size:
            raise BadRequest(f"data {data_id.hex()} has {len(data)} bytes, the request says {size}")
        return data

    def forget(self, data_id: bytes) -> None:
        """The mutation is acknowledged: nobody will ask for its data again."""
        with self._lock:
            data = self._held.pop(data_id, None)
            if data is not None:
                self._held_bytes -= len(data)
