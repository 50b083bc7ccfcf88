"""The recipe for a primary (Chubby §2.4, §2.6): who has the lock writes who it is."""

from __future__ import annotations

from mrstream.lock.client.handle import Held, NodeHandle


def elect(handle: NodeHandle, name: bytes, wait_s: float | None = None) -> Held:
    """Wait in line for the lock, then write the name for all to read; the lock is held until the
    result is released. Whoever wants to know the primary reads the file, and watches it."""
    held = Held(handle, handle.acquire(wait_s=wait_s))
    handle.set(name)
    return held
