"""Writing files: bytes in, runs of a few megabytes out to all replicas (GFS §3.1).

Takes bytes in order; cuts them at chunk edges (GFS-39). One thread pushes the next run while
another has the one before written, so the network and the disks work at the same time. A run is
kept until all replicas have it, and sent again, elsewhere if need be, when a server fails. The last
run of a chunk, of a `flush` and of `close` is synced, and with it all before; `close` returns when
everything is on the disks of all replicas and the master has the length on its own.
"""

from __future__ import annotations

import contextlib
import io
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from mrstream.cluster.errors import ClusterError
from mrstream.dfs.chunk import ChunkVersion, ServerId
from mrstream.dfs.client.chunk_writer import SMALL_BYTES as SMALL_RUN_BYTES
from mrstream.dfs.client.chunk_writer import Push, Run, write_run
from mrstream.dfs.client.ending import Ending
from mrstream.dfs.errors import BadRequest, WriterFenced
from mrstream.dfs.protocol import (
    AbandonFile,
    AllocateChunk,
    ChunkGrant,
    CloseFile,
    ConfirmLength,
    CreateFile,
    FileStatus,
    FindLease,
    OpenAppend,
    OpenFile,
)

if TYPE_CHECKING:
    from mrstream.dfs.client.client import DfsClient

RUN_BYTES = 4 << 20
READ_BYTES = 1 << 20
SMALL_BYTES = 64 << 10
QUEUE_RUNS = 3


class DfsWriter(io.RawIOBase):
    """A file open for writing by one writer. Not for two threads at once."""

    def __init__(
        self,
        client: DfsClient,
        opened: OpenFile,
        ending: Ending | None = None,
        *,
        queue_runs: int = QUEUE_RUNS,
    ) -> None:
        """At most `queue_runs` runs wait to be written: each is memory."""
        super().__init__()
        self.ending = ending or Ending()
        """What the close asks for besides; the caller may change it until then."""
        self._client = client
        self.status: FileStatus = opened.status
        """As the file was when it was opened; after a close as it is."""
        self._epoch = opened.epoch
        """This writer's right to the file: the master refuses every other, and this one as well
        once it was silent for too long."""
        self._chunk_bytes = opened.status.chunk_bytes
        self._position = opened.status.length_bytes
        """How long the file is to whoever writes it: what was sent, and what is being gathered."""
        self._acknowledged = self._position
        """All replicas have the file up to here: runs are written in order, without a gap. Moved by
        whoever writes runs: the thread, or the caller while there is none."""
        self._buffer = bytearray()
        """The run being gathered; given away with it, since it may have to be sent again."""
        self._filled = 0
        """How much of the buffer that is. It never reaches over the edge of a chunk."""
        self._spare: list[bytearray] = []
        """Buffers of a whole run each that nobody looks at any more: filled by whoever writes runs,
        emptied by the caller."""
        self._is_synced = True
        """The last run asked for a sync, or there was none: then all before it is synced as well,
        since the last of every chunk does."""
        self._runs: queue.Queue[Run | None] = queue.Queue(queue_runs)
        """For the thread, in order; None: it may go."""
        self._buffers_kept = queue_runs + 2
        """As many as can be in use: waiting, being written, being gathered."""
        self._idle = threading.Condition()
        """Guards `_unwritten`; told when it falls."""
        self._unwritten = 0
        """Runs that were made and are neither written nor given up."""
        self._error: BaseException | None = None
        """What ended the writing; never taken back, and no run is written after it."""
        self._grant: ChunkGrant | None = opened.grant
        """The newest, of the chunk written last. Whoever writes runs replaces it; the caller looks
        to push ahead, and a push under an old one is only in vain."""
        self._worker: threading.Thread | None = None
        """There from the first run on that nobody waits for; the caller's alone."""
        self._is_over = False
        """Closed, given up or collected: nothing more is begun. Never taken back."""
        client.keep_alive(self._epoch, self._fenced)

    # --- as a file

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._check_open()
        position = 0
        while position < len(view):
            piece = view[position : position + self._room()]
            self._space(len(piece))[:] = piece
            position += len(piece)
            self._took(len(piece))
        return len(view)

    def write_from(self, read_into: Callable[[memoryview], int | None]) -> int:
        """Write what `read_into` puts into the buffer that it is given; return how many bytes, 0
        if it gave none. Saves `write` its copy."""
        self._check_open()
        # A file may be small: little room is made for its first bytes, and more when that is full.
        left = len(self._buffer) - self._filled
        size = left or (READ_BYTES if self._position else SMALL_BYTES)
        count = read_into(self._space(min(size, READ_BYTES, self._room()))) or 0
        self._took(count)
        return count

    def flush(self) -> None:
        """Return when every byte written so far is on the disks of all replicas."""
        if self._is_over or self.closed:
            return
        if self._filled or not self._is_synced:
            self._submit(durable=True)
        self._drain()

    def confirm(self) -> None:
        """`flush`, and let readers see the length from now on."""
        self.flush()
        self._check_whole()
        self._client.call(ConfirmLength(self.status.file_id, self._epoch, self._position))

    def close(self) -> None:
        """Write out the rest and make the file's length durable; the file is complete then. If that
        fails the file is given up, as by `abandon`."""
        if self.closed:
            return
        try:
            if not self._is_over:
                self.flush()
                self._end()
                self._close_file()
        except BaseException:
            # What is not complete must not look so, nor take the place of what was there.
            self._give_up()
            raise
        finally:
            self._is_over = True
            self._end()
            self._client.let_go(self._epoch)
            super().close()

    def _check_whole(self) -> None:
        """No length is told to the master that is not on the disks of all replicas."""
        assert not self._filled and not self._unwritten and self._is_synced, self.status.path
        assert self._acknowledged == self._position, (self._acknowledged, self._position)

    def _close_file(self) -> None:
        self._check_whole()
        end = self.ending
        self.status = self._client.call(
            CloseFile(
                self.status.file_id, self._epoch, self._position, end.path, end.overwrite,
                end.parents, end.replaces, end.keep_replaced, end.attributes,
            )
        )  # fmt: skip

    def _give_up(self) -> None:
        # Not heard, or over already: the master finds out by itself.
        with contextlib.suppress(ClusterError):
            self._client.call_once(AbandonFile(self.status.file_id, self._epoch))

    def abandon(self) -> None:
        """Give the file up: if this writer created it, it disappears; if it was there before, it
        keeps what it had and what was flushed since."""
        if self._is_over or self.closed:
            return
        self._is_over = True
        self._end()
        self._give_up()
        self._client.let_go(self._epoch)
        super().close()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            # A file that failed half-way must not look complete.
            self.abandon()
        else:
            self.close()

    def __del__(self) -> None:
        # Garbage collection is no acknowledgement: an unclosed file is left to recovery.
        self._is_over = True

    # --- runs

    def _check_open(self) -> None:
        if self.closed or self._is_over:
            raise ValueError(f"{self.status.path} is closed")
        self._raise_error()

    def _space(self, size: int) -> memoryview:
        """Where the next `size` bytes of the run being gathered go."""
        end = self._filled + size
        if len(self._buffer) < end:
            self._enlarge(end)
        return memoryview(self._buffer)[self._filled : end]

    def _took(self, count: int) -> None:
        """So many bytes were put there; a run that is full is on its way when it returns."""
        room = self._room()
        assert 0 <= count <= room, f"{count} bytes were put into a room of {room}"
        is_full = count == room
        self._filled += count
        self._position += count
        if is_full:
            self._submit(durable=False)

    def _room(self) -> int:
        """How many bytes still go into the run being gathered."""
        start = self._position - self._filled
        to_edge = self._chunk_bytes - start % self._chunk_bytes
        return min(RUN_BYTES, to_edge) - self._filled

    def _enlarge(self, size: int) -> None:
        """Make room for so many bytes: little for a small file, a whole run's for a larger one."""
        if self._spare:
            larger = self._spare.pop()
        else:
            larger = bytearray(SMALL_BYTES if size <= SMALL_BYTES else RUN_BYTES)
        larger[: self._filled] = memoryview(self._buffer)[: self._filled]
        self._buffer = larger

    def _submit(self, *, durable: bool) -> None:
        self._raise_error()
        start = self._position - self._filled
        index, offset = divmod(start, self._chunk_bytes)
        if not self._filled:
            assert start > 0, "an empty file has nothing to sync"
            # Nothing new, but what was sent last is not synced: it is in the chunk before.
            index, offset = divmod(start - 1, self._chunk_bytes)
            offset += 1
        is_full = offset + self._filled == self._chunk_bytes
        run = Run(index, offset, memoryview(self._buffer)[: self._filled], durable or is_full)
        self._buffer, self._filled = bytearray(), 0
        self._is_synced = run.durable
        with self._idle:
            self._unwritten += 1
        if self._worker is None and durable:
            # Somebody waits for it and nothing goes on beside it: no need of a thread.
            self._write_one(run)
            return
        if self._worker is None:
            self._worker = threading.Thread(target=self._write_runs, name="dfs-writer", daemon=True)
            self._worker.start()
        self._push_ahead(run)
        self._runs.put(run)

    def _push_ahead(self, run: Run) -> None:
        """Send in the writer's own thread while those before are passed on and written."""
        grant = self._grant
        if grant is None or grant.index != run.index:
            return  # its chunk does not exist yet
        if len(run.data) <= SMALL_RUN_BYTES:
            return  # it goes together with its write request
        # Whoever writes the run finds out whether it arrived, and repairs what failed.
        run.underway = Push(self._client, run, grant)

    def _write_runs(self) -> None:
        while (run := self._runs.get()) is not None:
            self._write_one(run)

    def _write_one(self, run: Run) -> None:
        try:
            if self._error is None and not self._is_over:
                start = run.index * self._chunk_bytes + run.offset
                assert start == self._acknowledged, (start, self._acknowledged)
                grant = self._grant_for(run.index)
                self._grant = write_run(self._client, run, grant, self._find_grant)
                self._acknowledged += len(run.data)
                self._reuse(run)
        except BaseException as error:
            # Raised where the caller can see it: at its next write, flush or close.
            self._error = error
        finally:
            if run.underway is not None:
                run.underway.close()
            with self._idle:
                self._unwritten -= 1
                self._idle.notify_all()

    def _reuse(self, run: Run) -> None:
        """Keep the memory of an acknowledged run for one to come."""
        buffer = run.data.obj
        run.data.release()
        assert isinstance(buffer, bytearray)
        if len(buffer) == RUN_BYTES and len(self._spare) < self._buffers_kept:
            self._spare.append(buffer)

    def _grant_for(self, index: int) -> ChunkGrant:
        grant = self._grant
        if grant is not None and grant.index == index:
            return grant
        if index * self._chunk_bytes < self.status.length_bytes:
            # The last chunk of a file that is being appended to.
            return self._find_grant_at(index, (), None)
        allocated: ChunkGrant = self._client.call(
            AllocateChunk(self.status.file_id, self._epoch, index, self._client.place.host)
        )
        self._grant = allocated
        return allocated

    def _find_grant(self, old: ChunkGrant, failed: tuple[ServerId, ...]) -> ChunkGrant:
        return self._find_grant_at(old.index, failed, old)

    def _find_grant_at(
        self, index: int, failed: tuple[ServerId, ...], old: ChunkGrant | None
    ) -> ChunkGrant:
        if self._is_over:
            # Whoever gave the file up waits for this thread: it need not repair anything.
            raise WriterFenced(f"{self.status.path}: was given up")
        request = FindLease(
            self.status.path,
            index,
            self.status.file_id,
            self._epoch,
            old.version if old is not None else ChunkVersion(0),
            failed,
            self._client.user,
        )
        grant: ChunkGrant = self._client.call(request)
        self._grant = grant
        return grant

    def _drain(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._unwritten == 0)
        self._raise_error()

    def _end(self) -> None:
        """Stop the thread; runs that it still has are not written."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._runs.put(None)
            worker.join()

    def _raise_error(self) -> None:
        error = self._error
        if error is not None:
            raise error

    def _fenced(self) -> None:
        if self._error is None:
            self._error = WriterFenced(
                f"{self.status.path}: another client has taken the file over, or the master closed "
                "it because this writer was silent"
            )


def create(
    client: DfsClient,
    path: str,
    *,
    overwrite: bool = False,
    replication: int = 0,
    chunk_bytes: int = 0,
    mode: int = 0o644,
    parents: bool = True,
    first_chunk: bool = True,
) -> DfsWriter:
    """Make a file and open it for writing; FileExists if it is there and may not be replaced.

    Without `first_chunk` the master makes a chunk only when there are bytes for it.
    """
    if chunk_bytes < 0 or replication < 0:
        raise BadRequest(
            f"replication {replication} and chunk size {chunk_bytes} must be 0 or more"
        )
    client = client.at(path)
    opened: OpenFile = client.call(
        CreateFile(
            path=path,
            client=client.name,
            user=client.user,
            group=client.group,
            mode=mode,
            replication=replication,
            chunk_bytes=chunk_bytes,
            overwrite=overwrite,
            parents=parents,
            first_chunk=first_chunk,
            near=client.place.host,
        )
    )
    return DfsWriter(client, opened)


def create_hidden(
    client: DfsClient,
    path: str,
    *,
    overwrite: bool = False,
    replication: int = 0,
    chunk_bytes: int = 0,
    mode: int = 0o644,
    parents: bool = False,
    first_chunk: bool = False,
    queue_runs: int = QUEUE_RUNS,
) -> DfsWriter:
    """As `create`, under a name that no listing shows until it is closed: then it has its own, and
    only then a file that was there is replaced. Any number may write to one path at a time: the
    last to close has it. `DfsWriter.ending` says what else comes with the close."""
    client = client.at(path)
    opened: OpenFile = client.call(
        CreateFile(
            path=path,
            client=client.name,
            user=client.user,
            group=client.group,
            mode=mode,
            replication=replication,
            chunk_bytes=chunk_bytes,
            overwrite=overwrite,
            parents=parents,
            first_chunk=first_chunk,
            near=client.place.host,
            hidden=True,
        )
    )
    ending = Ending(path, overwrite, parents)
    return DfsWriter(client, opened, ending, queue_runs=queue_runs)


def append(client: DfsClient, path: str) -> DfsWriter:
    """Open a file for writing at its end."""
    client = client.at(path)
    opened: OpenFile = client.call(OpenAppend(path, client.name, client.user, client.place.host))
    return DfsWriter(client, opened)
