"""The durable log of both masters (GFS §2.6.3): decide, make durable, only then answer.

`append` takes a record and returns its sequence at once; a commit thread writes everything that
has gathered with one write and one fdatasync, then releases whoever waits for those sequences. J1:
a sequence at or below `durable` survives any crash. J2: `recover` gives exactly the records up to
some sequence at or above every one that was ever called durable, or raises. A commit that fails
ends the journal: `on_failure` is told, and nothing is called durable again. Room for records to
come is kept ahead, so that a full disk is known (`blocked`) while those underway still get there;
once that is used up it is waited out: nothing is acknowledged meanwhile, and nothing lost.

Never decides what a record means, nor when to make a checkpoint.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterable

from mrstream.cluster.disk import Disk, DiskFile, OsDisk, make_directory
from mrstream.cluster.errors import DiskFailed
from mrstream.cluster.journal import checkpoint
from mrstream.cluster.journal.forked import fork_to_write, has_written
from mrstream.cluster.journal.format import (
    FILE_HEADER,
    LOG_MAGIC,
    encode_file_header,
    encode_record,
)
from mrstream.cluster.journal.recovery import Recovery, log_path, recover, remove_old
from mrstream.cluster.journal.waiting import Waiting

log = logging.getLogger(__name__)

NO_SPACE_RETRY_S = 1.0
RESERVE_BYTES = 1 << 20
"""For thousands of records; room is asked for again when half of it is used."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class _Rotate:
    """In the queue of records: from here on, a new file."""


class Journal:
    """One journal in one directory; for one process at a time.

    Call `recover` first, then `start` (or drive it by hand with `commit`), then `append`.
    """

    def __init__(
        self,
        directory: str,
        cluster_id: str,
        *,
        disk: Disk | None = None,
        on_failure: Callable[[DiskFailed], None] | None = None,
    ) -> None:
        self.directory = os.path.abspath(directory)
        self.cluster_id = cluster_id
        self.sequence = 0
        """The last sequence given out."""
        self.durable = 0
        """The last sequence that survives a crash (J1)."""
        self.blocked = ""
        """Why nothing more should be appended at the moment, for people; empty when it may be."""
        self._disk: Disk = OsDisk() if disk is None else disk
        self._on_failure = on_failure
        self._marker = hashlib.sha256(cluster_id.encode()).digest()[:4]
        self._file: DiskFile | None = None
        """Open from `recover` to `close`; the commit thread's own once that has started."""
        self._file_bytes = 0
        """So much of it is whole records that were synced; what a failed write left behind is cut
        off again before the next."""
        self._reserved_bytes = 0
        """The file may become so long even on a full disk."""
        self._pending: list[tuple[int, bytes] | _Rotate] = []
        """Taken and not yet on their way to the disk, in the order of their sequences, without a
        gap: the first is the one behind what the disk has or is being given."""
        self._changed = threading.Condition()
        """Guards sequences, pending records and the failure; told when any of them changes."""
        self._failure: DiskFailed | None = None
        """Why nothing more will be durable; never taken back, since nobody knows what the disk has
        after a sync that failed."""
        self._thread: threading.Thread | None = None
        self._stopping = False
        """What is pending is the last; never taken back."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = Waiting()
        """Futures of the loop, touched there alone."""

    # --- beginning

    def look(self) -> Recovery:
        """Read what is there and change nothing; raise `JournalCorrupt`, `WrongCluster` or
        `NewerFormat` when it cannot be trusted."""
        return recover(self._disk, self.directory, self.cluster_id, self._marker)

    def recover(self, found: Recovery | None = None) -> Recovery:
        """Go on from what `look` finds (or has `found`): cut a torn tail off, open the files."""
        assert self._file is None, "a journal is recovered once"
        found = self.look() if found is None else found
        self.sequence = self.durable = found.last_sequence
        if found.unfinished_path is not None:
            self._disk.remove(found.unfinished_path)
            # Were it back after a power cut, the torn tail of the file before it would be damage.
            self._disk.sync_directory(self.directory)
        if found.tail_path is None:
            make_directory(self._disk, self.directory)
            self._open_file()
        else:
            self._file = self._disk.open(found.tail_path, write=True)
            self._file_bytes = found.tail_bytes
            if found.tail_bytes < self._file.size():
                self._file.truncate(found.tail_bytes)
            # After a crash of the process alone the last records may only be in the cache: they
            # are believed from here on, so they must be on the disk (J1).
            self._file.sync()
        checkpoint.remove_parts(self._disk, self.directory)
        return found

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start the commit thread; with a loop, `when_durable` may be awaited there."""
        assert self._file is not None and self._thread is None
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="journal-commit", daemon=True)
        self._thread.start()

    # --- records

    def append(self, payload: bytes) -> int:
        """Take a record; return its sequence. It is not durable yet."""
        assert payload, "a record holds at least a byte"
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self.sequence += 1
            self._pending.append((self.sequence, payload))
            if len(self._pending) == 1:
                self._changed.notify_all()
            return self.sequence

    def when_durable(self, sequence: int) -> asyncio.Future[None]:
        """Return a future (of the loop given to `start`) that is done once J1 holds for the
        sequence; it raises `DiskFailed` if that will never be."""
        assert self._loop is not None
        future = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        elif sequence <= self.durable:
            future.set_result(None)
        else:
            self._waiting.add(sequence, future)
        return future

    def wait_durable(self, sequence: int, timeout_s: float | None = None) -> bool:
        """Block until J1 holds for the sequence (True) or the time is over (False)."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.durable >= sequence or self._failure is not None, timeout_s
            )
            if self._failure is not None and self.durable < sequence:
                raise self._failure
            return done

    def commit(self) -> None:
        """Make everything appended so far durable, in this thread: for simulators and tests that
        have no commit thread."""
        with self._changed:
            batch, self._pending = self._pending, []
        self._write(batch)

    # --- checkpoints

    def rotate(self) -> int:
        """Begin a new file with the next record; return the sequence that a checkpoint of the
        state at this moment has. Records up to it may still be on their way to the disk."""
        with self._changed:
            self._pending.append(_Rotate())
            self._changed.notify_all()
            return self.sequence

    def write_checkpoint(self, sequence: int, pieces: Iterable[bytes]) -> None:
        """Write the state after `sequence` (from `rotate`) in this thread, then drop what two
        checkpoints make needless."""
        if self._thread is not None:
            self.wait_durable(sequence)
        checkpoint.write_checkpoint(self._disk, self.directory, self.cluster_id, sequence, pieces)
        remove_old(self._disk, self.directory)

    def fork_checkpoint(self, produce: Callable[[], Iterable[bytes]]) -> threading.Thread:
        """Rotate, and let a forked child write the state as it is at this moment, beside the
        running service. Returns the thread that waits for the child: join it to know the end;
        a checkpoint that fails is only logged, since the log still has everything."""
        sequence = self.rotate()
        place = (self._disk, self.directory, self.cluster_id, sequence)
        child = fork_to_write(lambda: checkpoint.write_part(*place, produce()))
        thread = threading.Thread(
            target=self._await_child, args=(child, sequence), name="checkpoint", daemon=True
        )
        thread.start()
        return thread

    def _await_child(self, child: int, sequence: int) -> None:
        try:
            if not has_written(child):
                checkpoint.remove_part(self._disk, self.directory, sequence)
                raise OSError(errno.EIO, "its child could not write it")
            self.wait_durable(sequence)
            checkpoint.publish_part(self._disk, self.directory, sequence)
            remove_old(self._disk, self.directory)
        except (OSError, DiskFailed) as error:
            log.error("checkpoint sequence=%d failed: %s", sequence, error)
            return
        log.info("checkpoint sequence=%d written", sequence)

    # --- ending

    def close(self) -> None:
        """Commit what is pending and end; the journal cannot be used again."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        elif self._failure is None and self._file is not None:
            self.commit()
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- the commit thread

    def _run(self) -> None:
        try:
            self._write([])  # it keeps room for the first record
        except DiskFailed:
            return
        while True:
            with self._changed:
                while not self._pending and not self._stopping:
                    if not self._changed.wait(NO_SPACE_RETRY_S if self.blocked else None):
                        break
                if not self._pending and self._stopping:
                    return
                batch, self._pending = self._pending, []
            try:
                self._write(batch)
            except DiskFailed:
                return

    def _write(self, batch: list[tuple[int, bytes] | _Rotate]) -> None:
        run: list[tuple[int, bytes]] = []
        try:
            for item in batch:
                if isinstance(item, _Rotate):
                    self._write_run(run)
                    run = []
                    self._rotate_now()
                else:
                    run.append(item)
            self._write_run(run)
            self._reserve()
        except OSError as error:
            self._fail(error)

    def _write_run(self, run: list[tuple[int, bytes]]) -> None:
        if not run:
            return
        assert self._file is not None
        last, durable, marker = run[-1][0], self.durable, self._marker
        assert (run[0][0], last) == (durable + 1, durable + len(run)), "a gap in the log"
        data = b"".join([encode_record(marker, at, durable, payload) for at, payload in run])
        self._write_when_there_is_space(data)
        self._file.sync()
        self._file_bytes += len(data)
        with self._changed:
            self.durable = last
            self._changed.notify_all()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release)

    def _write_when_there_is_space(self, data: bytes) -> None:
        assert self._file is not None
        while True:
            try:
                self._file.write(data, self._file_bytes)
                return
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise
                self._block()
                self._file.truncate(self._file_bytes)
                self._reserved_bytes = 0
            with self._changed:
                if self._changed.wait_for(lambda: self._stopping, NO_SPACE_RETRY_S):
                    raise OSError(errno.ENOSPC, self.blocked)

    def _reserve(self) -> None:
        """Keep room for records to come; if there is none, say so before they need it."""
        assert self._file is not None
        if self._reserved_bytes - self._file_bytes >= RESERVE_BYTES // 2:
            return
        wanted = self._file_bytes + RESERVE_BYTES
        try:
            self._file.reserve(wanted)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            self._block()
        else:
            self._reserved_bytes = wanted
            self.blocked = ""

    def _block(self) -> None:
        if not self.blocked:
            self.blocked = f"no space left in {self.directory}"
            log.error("journal: %s", self.blocked)

    def _release(self) -> None:
        self._waiting.release(self.durable, self._failure)

    def _fail(self, error: OSError) -> None:
        failure = DiskFailed(f"{self.directory}: cannot make the journal durable: {error}")
        log.critical("%s", failure)
        with self._changed:
            self._failure = failure
            self._changed.notify_all()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release)
        if self._on_failure is not None:
            self._on_failure(failure)
        raise failure from error

    def _rotate_now(self) -> None:
        if self._file_bytes == FILE_HEADER.size:
            return  # nothing in it yet: it begins with the right sequence already
        if self._file is not None:
            self._file.close()
        self._open_file()

    def _open_file(self) -> None:
        first = self.durable + 1
        header = encode_file_header(LOG_MAGIC, self.cluster_id, first, self._marker)
        self._file = self._disk.open(log_path(self.directory, first), create=True)
        self._file.write(header, 0)
        self._file.sync()
        self._disk.sync_directory(self.directory)
        self._file_bytes = len(header)
        self._reserved_bytes = 0
