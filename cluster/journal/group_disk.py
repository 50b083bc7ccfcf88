"""The thread of a member's disk: writes gather while it syncs; cuts and the like keep their turn.

Everything that changes the files of a `GroupLog` passes through here in the order in which it was
asked for. A full disk is waited out for a while; any other failure ends the member.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable

from mrstream.cluster.consensus.commands import Write
from mrstream.cluster.errors import DiskFailed
from mrstream.cluster.journal.group_log import GroupLog

log = logging.getLogger(__name__)

NO_SPACE_RETRY_S = 0.5
NO_SPACE_S_MAX = 5.0
"""A member whose disk is full for longer ends: another may have room."""

Work = Callable[[], None]


class GroupDisk:
    """One thread before one log."""

    def __init__(
        self,
        group_log: GroupLog,
        on_synced: Callable[[int, int], None],
        on_failure: Callable[[DiskFailed], None],
    ) -> None:
        self._log = group_log
        self._on_synced = on_synced
        self._on_failure = on_failure
        self.lock = threading.Lock()
        """Held while the files change; by others while they read."""
        self.blocked = ""
        """Why nothing can be written at the moment, for people; empty when it can."""
        self._changed = threading.Condition()
        """Guards the queue and the wish to end."""
        self._queue: list[Write | Work] = []
        """What the brain decided, in that order: nothing overtakes anything."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="group-disk", daemon=True)
        self._thread.start()

    def write(self, command: Write) -> None:
        """Append records, then sync and say so."""
        self._put(command)

    def in_turn(self, work: Work) -> None:
        """Let something happen after all that was asked for before; return when it is done, or
        when the disk has failed, which `on_failure` hears of."""
        done = threading.Event()

        def do() -> None:
            with self.lock:
                work()
            done.set()

        self._put(do)
        while not done.wait(0.1) and self._thread.is_alive():
            pass

    def close(self) -> None:
        """Do what is left, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _put(self, item: Write | Work) -> None:
        with self._changed:
            self._queue.append(item)
            self._changed.notify()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._queue and not self._stopping:
                        self._changed.wait()
                    if not self._queue:
                        return
                    batch, self._queue = self._queue, []
                self._do(batch)
        except OSError as error:
            failure = DiskFailed(f"{self._log.directory}: cannot make the log durable: {error}")
            log.critical("%s", failure)
            self._on_failure(failure)

    def _do(self, batch: list[Write | Work]) -> None:
        last: Write | None = None
        for item in batch:
            if isinstance(item, Write):
                self._write_when_there_is_space(item)
                last = item
            else:
                # A cut or a new file: what was written before it is synced with the old one.
                self._sync(last)
                last = None
                item()
        self._sync(last)

    def _sync(self, last: Write | None) -> None:
        if last is not None:
            self._on_synced(self._log.sync(), last.era)

    def _write_when_there_is_space(self, item: Write) -> None:
        until_s = time.monotonic() + NO_SPACE_S_MAX
        while True:
            try:
                with self.lock:
                    self._log.write(item.first, item.records)
                self.blocked = ""
                return
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if not is_full or self._stopping or time.monotonic() > until_s:
                    raise
                if not self.blocked:
                    self.blocked = f"no space left in {self._log.directory}"
                    log.error("group log waits: %s", self.blocked)
            time.sleep(NO_SPACE_RETRY_S)
