"""One thread a client that tells the master which of its writers live."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from mrstream.cluster.errors import Unavailable
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import Epoch
from mrstream.dfs.protocol import KeepAlive

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 2.0


class Keeper:
    """Keeps the epochs of a client alive; the thread is there only while there are any."""

    def __init__(self, name: str, call_once: Callable[[Request], Any]) -> None:
        self._name = name
        self._call_once = call_once
        self._lock = threading.Lock()
        """Guards the two below; not held while the master is asked or a writer told."""
        self._epochs: dict[Epoch, Callable[[], None]] = {}
        """Writers that live, each with what tells it that it was fenced: once, for it goes then."""
        self._thread: threading.Thread | None = None
        """While there are epochs. It goes by itself, and takes its name out in the same moment: an
        epoch that comes later starts another."""
        self._closed = threading.Event()

    def keep(self, epoch: Epoch, on_fenced: Callable[[], None]) -> None:
        """Tell the master, from now on, that this epoch's writer lives."""
        with self._lock:
            self._epochs[epoch] = on_fenced
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="dfs-keep-alive", daemon=True
                )
                self._thread.start()

    def let_go(self, epoch: Epoch) -> None:
        """The writer is done."""
        with self._lock:
            self._epochs.pop(epoch, None)

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(KEEP_ALIVE_S):
            with self._lock:
                epochs = tuple(self._epochs)
                if not epochs:
                    self._thread = None
                    return
            try:
                fenced = self._call_once(KeepAlive(self._name, epochs))
            except Unavailable as error:
                log.debug("keep-alive was not answered: %s", error)
                continue
            for epoch in fenced:
                with self._lock:
                    on_fenced = self._epochs.pop(epoch, None)
                if on_fenced is not None:
                    on_fenced()
