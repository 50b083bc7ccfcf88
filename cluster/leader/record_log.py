"""A master's log as its shell uses it: records go in, checkpoints are made when it has grown.

The journal below may be of one process or of a group: what is durable is its to say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol


class JournalFace(Protocol):
    """What `Journal` and `ReplicatedJournal` have in common for whoever writes records."""

    sequence: int
    durable: int

    def append(self, payload: bytes) -> int: ...

    def fork_checkpoint(self, produce: Callable[[], Iterable[bytes]]) -> threading.Thread: ...


class RecordLog:
    """The journal with a count of what came since the last checkpoint."""

    def __init__(self, journal: JournalFace, checkpoint_bytes: int) -> None:
        self._journal = journal
        self._checkpoint_bytes = checkpoint_bytes
        self._bytes_since = 0
        self._is_checkpointing = False

    @property
    def seen(self) -> int:
        return self._journal.sequence

    @property
    def durable(self) -> int:
        return self._journal.durable

    def append(self, payload: bytes) -> int:
        """Put a record behind all others; return its sequence."""
        self._bytes_since += len(payload)
        return self._journal.append(payload)

    def applied(self, payload: bytes) -> None:
        """A record came from the log, at a start or from another member's lead."""
        self._bytes_since += len(payload)

    @property
    def wants_checkpoint(self) -> bool:
        """Has the log grown enough since the last checkpoint, and is none under way?"""
        return self._bytes_since >= self._checkpoint_bytes and not self._is_checkpointing

    def checkpoint(
        self, produce: Callable[[], Iterable[bytes]], done: Callable[[], None] | None = None
    ) -> int:
        """Begin to write the state as it is now, beside the service; return its sequence. `done` is
        called from another thread at the end."""
        self._bytes_since = 0
        self._is_checkpointing = True
        sequence = self._journal.sequence
        thread = self._journal.fork_checkpoint(produce)

        def wait() -> None:
            thread.join()
            self._is_checkpointing = False
            if done is not None:
                done()

        threading.Thread(target=wait, name="after-checkpoint", daemon=True).start()
        return sequence
