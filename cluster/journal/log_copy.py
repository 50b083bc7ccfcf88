"""A copy of a master's journal on another host (GFS §2.6.3), kept by whatever daemon runs there.

The master's `LogSink` sends records; they are synced here before it calls them durable. A copy is a
journal like any other, so that a master can be brought up from it. A new copy is made beside the
old one, which stays until the new one is complete; one that goes further is never replaced. Only
the master that cluster.yaml names is listened to: one that was replaced is refused.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from crc32c import crc32c

from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.cluster.journal.checkpoint import CheckpointWriter, publish_part
from mrstream.cluster.journal.disk import OsDisk
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.wire.messages import Message, Request
from mrstream.cluster.wire.network import Handler, Peer

log = logging.getLogger(__name__)

_COMPLETE: Final = "complete"
_COPY, _DAMAGED = "copy-", "damaged-"
NAME_CHARS_MAX: Final = 64


class LogGap(Unavailable):
    """The copy is not where the sender believes; it must look at `LogPosition` again."""


class NotTheMaster(UserError):
    """Records came from a process that is not the master of this cluster (any more)."""


class CopyGoesFurther(UserError):
    """A copy may not be replaced by a log that is shorter than it."""


class LogPoint(Message, frozen=True):
    """How far a copy goes: its last record, with a checksum of it; -1: there is no copy."""

    sequence: int
    last_crc: int = 0
    log_bytes: int = 0
    damage: str = ""
    """What is wrong with the copy that there was, where there is none."""


class LogPosition(Request, frozen=True):
    """How far does your copy of this journal go?"""

    reply: ClassVar[Any] = LogPoint
    journal: str


class AppendLog(Request, frozen=True):
    """Keep these records, which follow each other; the answer comes when they are synced."""

    reply: ClassVar[Any] = int
    diagnosed: ClassVar[bool] = False
    journal: str
    first_sequence: int
    payloads: list[bytes]


class BeginCopy(Request, frozen=True):
    """Begin a new copy whose checkpoint is that of `sequence` (0: none, from the beginning)."""

    journal: str
    sequence: int
    last_sequence: int = -1
    """How far the sender's log goes: a copy that goes further stays; -1: not said."""


class CopyPiece(Request, frozen=True):
    """The next piece of the checkpoint."""

    diagnosed: ClassVar[bool] = False
    journal: str
    piece: bytes


class EndCopy(Request, frozen=True):
    """The checkpoint is whole: the new copy takes the place of the old one."""

    reply: ClassVar[Any] = LogPoint
    journal: str


class LogCopies:
    """All copies that a host keeps, below one directory; `handlers` go into a daemon's server."""

    def __init__(self, directory: str, cluster_id: str, is_master: Callable[[Peer], bool]) -> None:
        self._directory = directory
        self._cluster_id = cluster_id
        self._is_master = is_master
        self._copies: dict[str, _Copy] = {}
        # One thread: the order in which records come is the order in which they are kept.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "log-copy")
        self.handlers: Mapping[type[Any], Handler] = {
            LogPosition: self._on_thread(lambda copy, request: copy.point()),
            AppendLog: self._on_thread(
                lambda copy, request: copy.append(request.first_sequence, request.payloads)
            ),
            BeginCopy: self._on_thread(
                lambda copy, request: copy.begin(request.sequence, request.last_sequence)
            ),
            CopyPiece: self._on_thread(lambda copy, request: copy.piece(request.piece)),
            EndCopy: self._on_thread(lambda copy, request: copy.end()),
        }

    def close(self) -> None:
        """Finish what is under way and close the files."""
        self._thread.shutdown(wait=True)
        for copy in self._copies.values():
            copy.close()

    def _on_thread(self, work: Callable[[_Copy, Any], Any]) -> Handler:
        def answer(request: Any, peer: Peer) -> asyncio.Future[Any]:
            # Anyone who holds the secret may ask how far a copy goes; only the master may write.
            if not isinstance(request, LogPosition) and not self._is_master(peer):
                raise NotTheMaster(f"{peer.role} on {peer.host} is not this cluster's master")
            loop = asyncio.get_running_loop()
            return loop.run_in_executor(self._thread, self._work, work, request)

        return answer

    def _work(self, work: Callable[[_Copy, Any], Any], request: Any) -> Any:
        name = request.journal
        if name not in self._copies:
            if len(name) > NAME_CHARS_MAX or not name.replace(".", "").isalnum():
                raise UserError(f"{name[:NAME_CHARS_MAX]!r} is not the name of a journal")
            folder = os.path.join(self._directory, name)
            self._copies[name] = _Copy(folder, self._cluster_id)
        try:
            return work(self._copies[name], request)
        except OSError as error:
            # A full disk, say: the master goes on without this copy, and tries again.
            raise Unavailable(f"the copy of {name} cannot be written: {error}") from None


class _Copy:
    """One journal's copy: the newest complete one; another may be in the making."""

    def __init__(self, directory: str, cluster_id: str) -> None:
        self._directory = directory
        self._cluster_id = cluster_id
        self._journal: Journal | None = None
        self._last_crc = 0
        self._log_bytes = 0
        self._damage = ""
        self._unreadable = ""
        """The copy that cannot be read, until another takes its place."""
        self._new: Journal | None = None
        self._writer: CheckpointWriter | None = None
        os.makedirs(directory, mode=0o700, exist_ok=True)
        found = newest_copy(directory)
        if found is not None:
            self._open(found)

    def _open(self, path: str) -> None:
        journal = Journal(path, self._cluster_id)
        try:
            recovered = journal.recover()
            for _, payload in recovered.records:
                self._last_crc = crc32c(payload)
                self._log_bytes += len(payload)
        except ClusterError as error:
            # The master will make a new one.
            log.error("copy of the log: %s", error)
            self._damage, self._unreadable = str(error), path
            return
        self._journal = journal

    def point(self) -> LogPoint:
        if self._journal is None:
            return LogPoint(-1, damage=self._damage)
        return LogPoint(self._journal.durable, self._last_crc, self._log_bytes)

    def append(self, first_sequence: int, payloads: list[bytes]) -> int:
        journal = self._journal
        if journal is None or first_sequence != journal.durable + 1:
            at = -1 if journal is None else journal.durable
            raise LogGap(f"the copy ends at {at}; records from {first_sequence} on do not follow")
        if not all(payloads) or not payloads:
            raise UserError("a record holds at least a byte, and a request at least a record")
        for payload in payloads:
            journal.append(payload)
            self._log_bytes += len(payload)
        journal.commit()
        self._last_crc = crc32c(payloads[-1])
        return journal.durable

    def begin(self, sequence: int, last_sequence: int) -> None:
        if sequence < 0:
            raise UserError(f"a copy cannot begin at record {sequence}")
        # The sender has compared; this is for one that did not, or did not well.
        if self._journal is not None and 0 <= last_sequence < self._journal.durable:
            raise CopyGoesFurther(
                f"the copy here goes to record {self._journal.durable}, the log that is to replace "
                f"it to {last_sequence}"
            )
        self._drop_new()
        path = os.path.join(self._directory, f"copy-{self._next_number():06d}")
        self._new = Journal(path, self._cluster_id)
        self._new.begin_after(sequence)
        if sequence > 0:
            self._writer = CheckpointWriter(OsDisk(), path, self._cluster_id, sequence)

    def piece(self, piece: bytes) -> None:
        if self._writer is None:
            raise LogGap("no copy has been begun")
        self._writer.add(piece)

    def end(self) -> LogPoint:
        new = self._new
        if new is None:
            raise LogGap("no copy has been begun")
        disk = OsDisk()
        if self._writer is not None:
            self._writer.finish()
            publish_part(disk, new.directory, new.durable)
        disk.create(os.path.join(new.directory, _COMPLETE)).close()
        disk.sync_directory(new.directory)
        disk.sync_directory(self._directory)
        old, self._journal, self._new, self._writer = self._journal, new, None, None
        self._last_crc, self._log_bytes, self._damage = 0, 0, ""
        if old is not None:
            old.close()
        self._clear_all_but(new.directory)
        return self.point()

    def _clear_all_but(self, path: str) -> None:
        """Remove older copies; the last that could not be read is kept: a person may want it."""
        names = os.listdir(self._directory)
        if self._unreadable:
            for name in names:
                if name.startswith(_DAMAGED):
                    shutil.rmtree(os.path.join(self._directory, name))
            number = os.path.basename(self._unreadable).removeprefix(_COPY)
            os.rename(self._unreadable, os.path.join(self._directory, f"{_DAMAGED}{number}"))
        for name in names:
            at = os.path.join(self._directory, name)
            if name.startswith(_COPY) and at not in (path, self._unreadable):
                shutil.rmtree(at)
        self._unreadable = ""

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self._drop_new()

    def _drop_new(self) -> None:
        if self._new is not None:
            self._new.close()
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._new.directory)
        self._new = self._writer = None

    def _next_number(self) -> int:
        numbers = [int(name.rpartition("-")[2]) for name in os.listdir(self._directory)]
        return max(numbers, default=0) + 1


def newest_copy(directory: str) -> str | None:
    """Return the directory of the newest complete copy of a journal, None if there is none."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    for name in sorted(names, reverse=True):
        if name.startswith(_COPY) and os.path.exists(os.path.join(directory, name, _COMPLETE)):
            return os.path.join(directory, name)
    return None
