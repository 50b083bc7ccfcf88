"""Treats a polite request to end (SIGTERM, SIGHUP) like Ctrl-C, for as long as a job is watched."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from mrstream.cluster.errors import INTERRUPTED

TERMINATED = 143


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt(signal number) for such a request; leave signals as they were."""

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    # Whoever clears up may ignore Ctrl-C meanwhile; that, too, ends here.
    interrupt = signal.getsignal(signal.SIGINT)
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGINT, interrupt)


def exit_status(stop: KeyboardInterrupt) -> int:
    """Return the status with which to end after Ctrl-C, or after a request from elsewhere."""
    return TERMINATED if stop.args else INTERRUPTED
