"""A file's writer below the process: which runs it makes of bytes, and what it never says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

from mrstream.cluster.errors import HostUnreachable, Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, Epoch, FileId, ServerId
from mrstream.dfs.client.chunk_writer import Run
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.topology import Place
from mrstream.dfs.client.writer import DfsWriter
from mrstream.dfs.errors import WriterFenced
from mrstream.dfs.protocol import (
    AbandonFile,
    AllocateChunk,
    ChunkGrant,
    CloseFile,
    ConfirmLength,
    Done,
    FileStatus,
    FindLease,
    OpenFile,
    PushData,
    ServerAddress,
    WriteChunk,
)

CHUNK_BYTES = 1000
PRIMARY = ServerAddress(ServerId("h1"), "127.0.0.1", 1, 2)
STATUS = FileStatus("/f", False, 0, 1, CHUNK_BYTES, 0.0, 0.0, "me", "me", 0o644, FileId(7), 0)


class Stream:
    """What the primary does with a push and the write behind it."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._pushed: dict[bytes, bytes] = {}

    def send(self, message: Request, data: memoryview | None = None) -> None:
        self._cell.before_send()
        if isinstance(message, PushData):
            assert data is not None
            self._pushed[message.data_id] = bytes(data)
        else:
            assert isinstance(message, WriteChunk)
            self._cell.written.append((message, self._pushed.get(message.data_id, b"")))

    def receive(self, kind: type) -> Any:
        assert kind is Done
        return Done()

    def close(self) -> None:
        pass


class Cell:
    """A master and one chunkserver, as a client sees them; it has the pool's face, too."""

    retry = RetryPolicy(total_s=5.0, first_s=0.001, longest_s=0.01)
    place = Place()
    user = name = "me"

    def __init__(self) -> None:
        self.written: list[tuple[WriteChunk, bytes]] = []
        self.told: list[Request] = []
        self.before_send: Callable[[], None] = lambda: None
        self.fence: Callable[[], None] = lambda: None
        self.pool = self

    def address_of(self, server: ServerAddress) -> str:
        return server.host

    def idle(self, address: str) -> None:
        return None

    def connect(self, address: str) -> Stream:
        return Stream(self)

    def give_back(self, address: str, stream: Stream) -> None:
        pass

    def call(self, *asked: Any) -> Any:
        request = asked[-1]
        if isinstance(request, WriteChunk):  # an empty run, straight to the primary
            self.before_send()
            self.written.append((request, b""))
            return Done()
        self.told.append(request)
        if isinstance(request, AllocateChunk | FindLease):
            version = ChunkVersion(len(self.told))
            return ChunkGrant(
                request.index, ChunkHandle(request.index), version, PRIMARY.server,
                (PRIMARY,), 60.0, CHUNK_BYTES,
            )  # fmt: skip
        if isinstance(request, CloseFile):
            return msgspec.structs.replace(STATUS, length_bytes=request.length_bytes)
        return None

    call_once = call

    def keep_alive(self, epoch: Epoch, on_fenced: Callable[[], None]) -> None:
        self.fence = on_fenced

    def let_go(self, epoch: Epoch) -> None:
        pass

    @property
    def content(self) -> bytes:
        """The file as the writes made it."""
        content = bytearray()
        for write, data in self.written:
            start = int(write.handle) * CHUNK_BYTES + write.offset
            assert write.offset + len(data) <= CHUNK_BYTES, "over the edge of a chunk"
            content[start : start + len(data)] = data
        return bytes(content)

    @property
    def ends(self) -> list[type]:
        return [type(each) for each in self.told if isinstance(each, CloseFile | AbandonFile)]


@pytest.fixture
def cell() -> Iterator[Cell]:
    yield Cell()


def opened(cell: Cell, kind: type[DfsWriter] = DfsWriter) -> DfsWriter:
    return kind(cast(DfsClient, cell), OpenFile(STATUS, Epoch(3)))


def test_bytes_are_cut_at_the_edges_of_chunks_and_arrive_in_order(cell: Cell) -> None:
    chance = random.Random(5)
    data = chance.randbytes(12_345)
    file, at = opened(cell), 0
    while at < len(data):
        piece = data[at : at + chance.randint(1, 700)]
        if chance.random() < 0.5:
            file.write(piece)
            at += len(piece)
        else:
            source = iter([piece])
            at += file.write_from(lambda room, source=source: _fill(room, next(source)))
        if chance.random() < 0.1:
            file.flush()
    file.close()

    assert cell.content == data
    assert file.status.length_bytes == len(data) and cell.ends == [CloseFile]


def _fill(room: memoryview, data: bytes) -> int:
    count = min(len(room), len(data))
    room[:count] = data[:count]
    return count


def test_the_last_run_of_every_chunk_and_of_the_file_asks_for_a_sync(cell: Cell) -> None:
    """So all before it is on disk, too: a server syncs a chunk, not a write."""
    with opened(cell) as file:
        file.write(bytes(2_500))

    last = {int(write.handle): write for write, _ in cell.written}
    assert sorted(last) == [0, 1, 2] and all(write.durable for write in last.values())


def test_what_failed_is_sent_again_before_anything_behind_it(cell: Cell) -> None:
    failures = iter([True, True, False, True])

    def fail() -> None:
        if next(failures, False):
            raise HostUnreachable("cut off")

    cell.before_send = fail
    data = random.Random(6).randbytes(3_100)
    with opened(cell) as file:
        file.write(data)

    assert cell.content == data
    assert any(isinstance(each, FindLease) for each in cell.told), "another grant was asked for"


def test_a_file_whose_writing_failed_is_given_up_and_never_closed(cell: Cell) -> None:
    cell.before_send = _no_room
    file = opened(cell)
    file.write(bytes(10))

    with pytest.raises(OSError, match="No space"):
        file.close()

    assert cell.ends == [AbandonFile]


def _no_room() -> None:
    raise OSError(28, "No space left on device")


def test_a_writer_that_was_fenced_writes_nothing_more(cell: Cell) -> None:
    file = opened(cell)
    cell.fence()

    with pytest.raises(WriterFenced):
        file.write(b"x")
    with pytest.raises(WriterFenced):
        file.close()
    assert not cell.written and cell.ends == [AbandonFile]


class Forgets(DfsWriter):
    """Wrong: its last bytes stay behind."""

    def flush(self) -> None:
        pass


class Skips(DfsWriter):
    """Wrong: a run that fails is left out."""

    def _write_one(self, run: Run) -> None:
        if run.index == 1:
            with self._idle:
                self._unwritten -= 1
                self._idle.notify_all()
            return
        super()._write_one(run)


class Unsynced(DfsWriter):
    """Wrong: the end of the file is in caches only."""

    def _submit(self, *, durable: bool) -> None:
        super()._submit(durable=False)


@pytest.mark.parametrize("wrong", [Forgets, Skips, Unsynced])
def test_no_length_is_told_that_is_not_on_all_disks(cell: Cell, wrong: type[DfsWriter]) -> None:
    """A wrong writer is stopped by its own laws, and its file given up."""
    for tell in (DfsWriter.close, DfsWriter.confirm):
        file = opened(cell, wrong)
        with pytest.raises(AssertionError):
            file.write(bytes(3_300))
            tell(file)
        file.abandon()

    assert CloseFile not in cell.ends
    assert not any(isinstance(each, ConfirmLength) for each in cell.told)


def test_a_reader_that_says_it_gave_more_than_there_was_room_for_is_found_out(cell: Cell) -> None:
    with pytest.raises(AssertionError, match="room of"), opened(cell) as file:
        file.write_from(lambda room: len(room) + CHUNK_BYTES)
    assert cell.ends == [AbandonFile]


def test_a_master_that_is_silent_at_the_close_gets_the_file_given_up(cell: Cell) -> None:
    """What is not known to be complete must not look so to whoever wrote it."""
    file = opened(cell)
    file.write(b"x")

    def call(request: Request) -> Any:
        if isinstance(request, CloseFile):
            raise Unavailable("nobody leads")
        return Cell.call(cell, request)

    cell.call = call  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        file.close()

    assert AbandonFile in cell.ends
