"""The answers that a server remembers, so that a repeated request is not carried out twice.

Keyed by (client id, request number). Bounded by count and by bytes; the oldest go first. An answer
that has not been given yet is remembered too: its repeat waits for the same answer. Never does IO.
"""

from __future__ import annotations

from collections import OrderedDict

REPLIES_COUNT_MAX = 65_536
REPLIES_BYTES_MAX = 64 * 1024 * 1024

RequestId = tuple[int, int]
"""(client id, request number)."""


class PendingReply:
    """An answer still being made; `waiting` are the connections that also asked for it."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[object] = []


class ReplyCache:
    """Recent answers to requests that mutate."""

    def __init__(self) -> None:
        self._bytes = 0
        """Of all answers that were given and are remembered."""
        self._replies: OrderedDict[RequestId, bytes | PendingReply] = OrderedDict()
        """In the order in which they were begun or, once answered, given. One that is pending is
        never dropped for want of room: its repeat would be carried out beside it."""

    def __len__(self) -> int:
        return len(self._replies)

    def find(self, request_id: RequestId) -> bytes | PendingReply | None:
        """Return the frame that answered this request, the pending answer, or None if it is new."""
        return self._replies.get(request_id)

    def begin(self, request_id: RequestId) -> None:
        """Note that the request is being carried out."""
        self._replies[request_id] = PendingReply()

    def finish(self, request_id: RequestId, frame: bytes) -> list[object]:
        """Remember the answer; return the connections that waited for it besides the first."""
        pending = self._replies.pop(request_id, None)
        assert not isinstance(pending, bytes), f"request {request_id} is answered twice"
        self._replies[request_id] = frame
        self._bytes += len(frame)
        while len(self._replies) > REPLIES_COUNT_MAX or self._bytes > REPLIES_BYTES_MAX:
            if not self._drop_oldest():
                break
        return pending.waiting if isinstance(pending, PendingReply) else []

    def forget(self, request_id: RequestId) -> list[object]:
        """Drop a pending answer that will not come; return the connections that waited for it."""
        pending = self._replies.pop(request_id, None)
        return pending.waiting if isinstance(pending, PendingReply) else []

    def _drop_oldest(self) -> bool:
        for request_id, reply in self._replies.items():
            if not isinstance(reply, PendingReply):
                del self._replies[request_id]
                self._bytes -= len(reply)
                return True
        return False
