"""Open nodes and held locks, as programs use them (Chubby §2.6).

A handle may be used by many threads, but its lock is taken and released by one call at a time
(CH-29): two threads that exclude each other open two handles. After the session is over every call
fails but `close` and `poison`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from mrstream.cluster.clock import SystemClock
from mrstream.cluster.closing import Closing
from mrstream.cluster.errors import ClusterError
from mrstream.lock import protocol as p
from mrstream.lock.client.link import CALL_S_MAX, Link
from mrstream.lock.errors import BadLockRequest, HandleInvalid, LockHeld, SessionExpired
from mrstream.lock.sequencer import parse

WAIT_S = 60.0
"""A wait for a lock is asked for in pieces of so long, so that a dead leader is noticed."""


class NodeHandle(Closing):
    """A node that this session has open."""

    def __init__(self, link: Link, opened: p.Opened, forget: Callable[[NodeHandle], None]) -> None:
        self.handle = opened.handle
        self.created = opened.created
        self._link = link
        self._forget = forget
        self._under = ""
        self._is_closed = False
        self._is_poisoned = False
        self._one_at_a_time = threading.Lock()

    @property
    def path(self) -> str:
        return self.handle.path

    @property
    def key(self) -> tuple[int, int]:
        """Which handle of the session it is, in events."""
        return self.handle.epoch, self.handle.number

    def _call(self, kind: type[p.HandleCall], timeout_s: float = CALL_S_MAX, **fields: Any) -> Any:
        if self._is_closed or self._is_poisoned:
            word = "closed" if self._is_closed else "poisoned"
            raise HandleInvalid(f"the handle of {self.path} was {word}")
        number = self._link.number()
        request = kind(0, 0, number, self.handle, under=self._under, **fields)
        return self._link.call(request, timeout_s)

    # --- contents

    def get(self) -> bytes:
        """Return the contents."""
        return self.look().contents

    def look(self) -> p.Seen:
        """Return contents and numbers: from the cache where it has this instance."""
        if not self._under and not self._is_poisoned and not self._is_closed:
            seen: p.Seen | None = self._link.cached(self.path)
            if seen is not None and seen.stat and seen.stat.instance == self.handle.instance:
                return seen
        request = p.Look(0, 0, self.path, self.handle, self._under)
        found: p.Seen = self._link.read(self.path, request, lambda it: len(it.contents) + 200)
        return found

    def set(self, contents: bytes, if_generation: int = p.ANY_GENERATION) -> int:
        """Write the whole file, if it is still of that generation; return the new one."""
        generation: int = self._call(p.SetContents, contents=contents, if_generation=if_generation)
        return generation

    def set_acl(self, acl: p.Acl) -> int:
        """Name other lists; return the new generation."""
        generation: int = self._call(p.SetAcl, acl=acl)
        return generation

    def delete(self) -> None:
        """Delete the node, which has no children and whose lock is free."""
        self._call(p.DeleteNode)

    # --- lock

    def acquire(self, *, shared: bool = False, wait_s: float | None = None) -> str:
        """Take the lock and return its sequencer; raise `LockHeld` if it was not had in that time
        (None: wait for ever; 0: do not wait)."""
        clock = SystemClock()
        until_s = None if wait_s is None else clock.now_s() + wait_s
        with self._one_at_a_time:
            while True:
                left_s = WAIT_S if until_s is None else max(0.0, until_s - clock.now_s())
                try:
                    taken: p.Taken = self._call(
                        p.AcquireLock, left_s + CALL_S_MAX, is_shared=shared,
                        wait_s=min(left_s, WAIT_S),
                    )  # fmt: skip
                    return taken.sequencer
                except BadLockRequest as error:
                    if not error.details.get("too_old"):
                        raise
                except LockHeld:
                    if until_s is not None and clock.now_s() >= until_s:
                        raise

    def try_acquire(self, *, shared: bool = False) -> str | None:
        """Take the lock if it is free; None: somebody has it."""
        try:
            return self.acquire(shared=shared, wait_s=0.0)
        except LockHeld:
            return None

    def release(self) -> None:
        """Free the lock."""
        with self._one_at_a_time:
            self._call(p.ReleaseLock)

    def sequencer(self) -> str:
        """Return what shows servers that this handle holds the lock."""
        text: str = self._call(p.GetSequencer)
        return text

    def set_sequencer(self, sequencer: str) -> None:
        """From now on, calls on this handle fail once that lock is not held any more."""
        self._under = sequencer

    # --- ends

    def refresh(self) -> None:
        """Tell a new leader that the handle is in use."""
        self._call(p.RefreshHandle)

    def poison(self) -> None:
        """Make whatever waits on the handle fail, and whatever comes."""
        if not self._is_poisoned and not self._is_closed:
            with contextlib.suppress(SessionExpired, HandleInvalid):  # nothing can wait there
                self._call(p.PoisonHandle)
            self._is_poisoned = True

    def close(self) -> None:
        """Let the node and its lock go. Never fails."""
        if self._is_closed:
            return
        was_poisoned, self._is_poisoned = self._is_poisoned, False
        with contextlib.suppress(ClusterError):  # what cannot be said ends with the session
            self._call(p.CloseNode)
        self._is_closed, self._is_poisoned = True, was_poisoned
        self._forget(self)


class Held:
    """A lock that is held until the block ends.

    `sequencer` proves it to servers; `fence` is what a file system needs: (path, generation).
    """

    def __init__(self, handle: NodeHandle, sequencer: str) -> None:
        self.handle = handle
        self.sequencer = sequencer

    @property
    def fence(self) -> tuple[str, int]:
        return parse(self.sequencer).fence

    @property
    def fence_text(self) -> str:
        """`PATH:GENERATION`, as `MRSTREAM_SEQUENCER` holds it."""
        return parse(self.sequencer).fence_text

    def release(self) -> None:
        """Free the lock and close its node."""
        self.handle.close()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
