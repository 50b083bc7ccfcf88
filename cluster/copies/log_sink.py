"""The master's end of a copy of its log: records go there before they are called durable.

A copy that does not answer in time is given up at once, so that the master goes on, and is brought
up to date beside the running service when its host is back: from the records since, or from a whole
checkpoint where it lags too far, is damaged, or its log has grown long. `in_step` says whether
everything durable is there too. A copy that goes further than our log, or another way, is never
touched: `on_behind` is told, and the master ends.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from crc32c import crc32c

from mrstream.cluster.config.config import CHUNKSERVER
from mrstream.cluster.copies.log_check import LogBehind, WayBack, copy_hosts
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import CallTimedOut, ClusterError, JournalCorrupt
from mrstream.cluster.journal.checkpoint import list_checkpoints, read_checkpoint
from mrstream.cluster.journal.disk import OsDisk
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.log_copy import (
    AppendLog,
    BeginCopy,
    CopyPiece,
    EndCopy,
    LogPoint,
    LogPosition,
)
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import Connection

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 3.0
RETRY_S: Final = 1.0
BATCH_BYTES: Final = 1024 * 1024
LOG_BYTES_MAX: Final = 256 * 1024 * 1024
RECENT_BYTES_MAX: Final = 8 * 1024 * 1024


def start_sinks(daemon: Daemon, journal: Journal) -> list[LogSink]:
    """Keep copies of a master's journal on as many other hosts as cluster.yaml asks for (the first
    ones that it names). Call it once the journal has been recovered; `stop_sinks` at the end."""
    config, master = daemon.config, daemon.host.name
    way_back = WayBack(config, master, journal.directory)
    sinks = [
        LogSink(
            host,
            config.address(host, CHUNKSERVER),
            daemon.identity,
            journal,
            way_back,
            daemon.refuse,
        )
        for host in copy_hosts(config, master)
    ]
    journal.sinks += sinks
    return sinks


def stop_sinks(sinks: Sequence[LogSink]) -> None:
    """End them, after the journal has been closed."""
    for sink in sinks:
        sink.close()


class _Refuted(Exception):
    """We found that a copy goes further than our log, or another way. No `ClusterError`: one of
    those the other side may name, and this is ours alone to say."""

    def __init__(self, error: LogBehind) -> None:
        super().__init__(str(error))
        self.error = error


class LogSink:
    """One copy on one host; a `JournalSink`. `close` ends its thread."""

    def __init__(
        self,
        host: str,
        address: str,
        identity: Identity,
        journal: Journal,
        way_back: WayBack,
        on_behind: Callable[[LogBehind], None],
    ) -> None:
        self.host = host
        self.in_step = False
        self.is_compared = False
        """Has the copy been found to be a part of our log, since we began?"""
        self._journal = journal
        self._name = identity.role
        self._way_back = way_back
        self._on_behind = on_behind
        self._connection = Connection(address, identity, connect_s_max=ANSWER_S_MAX)
        self._state = threading.Condition()
        self._batch: AppendLog | None = None
        self._sent_to = journal.durable
        # What was committed lately, for a copy that is about to be in step again.
        self._recent: deque[AppendLog] = deque()
        self._recent_bytes = 0
        self._said = ""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"log-sink-{host}", daemon=True)
        self._thread.start()

    # --- for the journal's commit thread

    def send(self, first_sequence: int, payloads: Sequence[bytes]) -> None:
        batch = AppendLog(self._name, first_sequence, list(payloads))
        with self._state:
            self._sent_to = first_sequence + len(payloads) - 1
            if self.in_step:
                self._batch = batch
            else:
                self._remember(batch)
            self._state.notify_all()

    def _remember(self, batch: AppendLog) -> None:
        self._recent.append(batch)
        self._recent_bytes += sum(map(len, batch.payloads))
        while self._recent_bytes > RECENT_BYTES_MAX:
            self._recent_bytes -= sum(map(len, self._recent.popleft().payloads))

    def wait(self) -> None:
        with self._state:
            self._state.wait_for(lambda: self._batch is None or not self.in_step)

    def close(self) -> None:
        """End; what was sent has been waited for."""
        with self._state:
            self._closing = True
            self.in_step = False
            self._state.notify_all()
        self._thread.join(ANSWER_S_MAX * 2)
        self._connection.close()

    # --- our own thread

    def _run(self) -> None:
        while not self._closing:
            try:
                if self.in_step:
                    self._pass_on()
                else:
                    self._catch_up()
            except _Refuted as found:
                self._on_behind(found.error)
                return
            except (ClusterError, OSError) as error:
                self._fall_behind(error)

    def _pass_on(self) -> None:
        with self._state:
            self._state.wait_for(lambda: self._batch is not None or self._closing)
            batch = self._batch
        if batch is None:
            return
        self._connection.call(batch, ANSWER_S_MAX)
        with self._state:
            self._batch = None
            self._state.notify_all()

    def _fall_behind(self, error: Exception) -> None:
        with self._state:
            if self.in_step or str(error) != self._said:
                log.error("copy of the log not in step host=%s: %s", self.host, error)
            self._said = str(error)
            self.in_step = False
            self._batch = None
            self._state.notify_all()
            self._state.wait_for(lambda: self._closing, RETRY_S)

    def _catch_up(self) -> None:
        point: LogPoint = self._connection.call(LogPosition(self._name), ANSWER_S_MAX)
        at = point.sequence
        fits = self._fits(point)
        # What a damaged copy had beyond our log nobody can tell any more: the doubt stays.
        self.is_compared = not point.damage
        if not fits:
            at = self._copy_whole()
        while not self._closing:
            batch = self._next_recent(at)
            if self.in_step:
                log.info("copy of the log in step host=%s sequence=%d", self.host, at)
                return
            if batch is None:
                reached = self._send_since(at)
                if reached == at:
                    threading.Event().wait(RETRY_S / 100)  # what follows is being committed now
                at = reached
            else:
                self._connection.call(batch, ANSWER_S_MAX)
                at += len(batch.payloads)

    def _next_recent(self, at: int) -> AppendLog | None:
        """Return what follows, if it is still in memory; be in step if nothing does.

        Many batches go as one: a copy that took them singly, each with a flush of its own, would
        never overtake a master that is busy.
        """
        with self._state:
            if at >= self._sent_to:
                self.in_step = True
                self._recent.clear()
                self._recent_bytes = 0
                return None
            while self._recent and self._recent[0].first_sequence <= at:
                self._recent_bytes -= sum(map(len, self._recent.popleft().payloads))
            if not self._recent or self._recent[0].first_sequence != at + 1:
                return None
            joined: list[bytes] = []
            size = 0
            for batch in self._recent:
                joined += batch.payloads
                size += sum(map(len, batch.payloads))
                if size >= BATCH_BYTES:
                    break
            return AppendLog(self._name, at + 1, joined)

    def _fits(self, point: LogPoint) -> bool:
        """Return whether the records after that point are all that the copy lacks; `_Refuted` if
        it has what our log has not."""
        if point.sequence < 0:
            return False
        if point.sequence > self._sent_to:
            behind = self._way_back.behind(self._journal.durable, self.host, point.sequence)
            raise _Refuted(behind)
        # It may have what we sent before we lost touch, a moment before our own disk has it.
        if not self._journal.wait_durable(point.sequence, ANSWER_S_MAX):
            raise CallTimedOut(f"record {point.sequence} is not durable yet")
        if point.sequence == 0:
            return self._has_records_after(0) and not self._is_long(point)
        if point.last_crc == 0:
            return False  # it ends with a checkpoint, which cannot be compared: a new one is sure
        own_crc = self._checksum(point.sequence)
        if own_crc is not None and own_crc != point.last_crc:
            raise _Refuted(self._way_back.diverged(self.host, point.sequence))
        return own_crc is not None and not self._is_long(point)

    def _is_long(self, point: LogPoint) -> bool:
        """Is a new copy, from a checkpoint, better than one that grows for ever?"""
        return point.log_bytes > LOG_BYTES_MAX and bool(
            list_checkpoints(OsDisk(), self._journal.directory)
        )

    def _checksum(self, sequence: int) -> int | None:
        """Return that of our record; None: our log does not go back that far any more."""
        try:
            for at, payload in self._journal.records_since(sequence - 1):
                return crc32c(payload) if at == sequence else None
        except JournalCorrupt:
            pass  # the caller takes it for a copy that lags too far
        return None

    def _has_records_after(self, sequence: int) -> bool:
        try:
            next(iter(self._journal.records_since(sequence)), None)
        except JournalCorrupt:
            return False
        return True

    def _copy_whole(self) -> int:
        disk, journal = OsDisk(), self._journal
        checkpoints = list_checkpoints(disk, journal.directory)
        sequence = checkpoints[0] if checkpoints else 0
        self._connection.call(BeginCopy(self._name, sequence, self._sent_to), ANSWER_S_MAX)
        if sequence:
            for block in read_checkpoint(disk, journal.directory, journal.cluster_id, sequence):
                self._connection.call(CopyPiece(self._name, block), ANSWER_S_MAX)
        self._connection.call(EndCopy(self._name), ANSWER_S_MAX * 4)
        log.info("copy of the log begun host=%s from sequence=%d", self.host, sequence)
        return sequence

    def _send_since(self, at: int) -> int:
        batch: list[bytes] = []
        size = 0
        for _, payload in self._journal.records_since(at):
            batch.append(payload)
            size += len(payload)
            if size >= BATCH_BYTES:
                self._connection.call(AppendLog(self._name, at + 1, batch), ANSWER_S_MAX)
                at, batch, size = at + len(batch), [], 0
        if batch:
            self._connection.call(AppendLog(self._name, at + 1, batch), ANSWER_S_MAX)
        return at + len(batch)
