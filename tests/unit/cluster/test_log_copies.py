"""Copies of a master's log on other hosts (GFS §2.6.3, GFS-16), over real connections."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.journal import Journal
from cluster.log_copy import AppendLog, LogCopies, NotTheMaster, newest_copy
from cluster.log_sink import LogSink
from cluster.network import Connection, Identity, Server, new_event_loop

SECRET = b"k" * 32
MASTER = Identity("c1", SECRET, "dfs.master", "h1")


class CopyHost:
    """A daemon that keeps copies; it can be stopped and started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = "127.0.0.1:0"
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server: Server | None = None

    def start(self) -> None:
        self._copies = LogCopies(
            str(self.directory), "c1", lambda peer: (peer.role, peer.host) == ("dfs.master", "h1")
        )
        self._server = Server(
            self._copies.handlers, Identity("c1", SECRET, "dfs.chunkserver", "h2")
        )
        self.address = self._on_loop(self._server.start(self.address))

    def stop(self) -> None:
        assert self._server is not None
        self._on_loop(self._server.close())
        self._copies.close()
        self._server = None

    def close(self) -> None:
        if self._server is not None:
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def records(self) -> list[bytes]:
        """What a master would recover from the copy."""
        path = newest_copy(str(self.directory / "dfs.master"))
        assert path is not None
        journal = Journal(path, "c1")
        found = journal.recover()
        state = b"".join(found.checkpoint).split(b"\n")[:-1]
        state += [payload for _, payload in found.records]
        journal.close()
        return state

    def _on_loop(self, coroutine):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CopyHost]:
    made = CopyHost(tmp_path / "copies")
    made.start()
    yield made
    made.close()


class Books:
    """A master's journal and what should be in it."""

    def __init__(self, directory: Path, host: CopyHost) -> None:
        self.state: list[bytes] = []
        self.journal = Journal(str(directory), "c1")
        found = self.journal.recover()
        self.state += b"".join(found.checkpoint).split(b"\n")[:-1]
        self.state += [payload for _, payload in found.records]
        self.journal.start()
        self.sink = LogSink("h2", host.address, MASTER, self.journal, "dfs.master")
        self.journal.sinks.append(self.sink)

    def add(self, count: int) -> None:
        for _ in range(count):
            self.state.append(b"r%d" % (len(self.state) + 1))
            self.journal.append(self.state[-1])
        assert self.journal.wait_durable(self.journal.sequence, 60)

    def checkpoint(self) -> None:
        sequence = self.journal.rotate()
        self.journal.write_checkpoint(sequence, [line + b"\n" for line in self.state])

    def close(self) -> None:
        self.journal.close()
        self.sink.close()


def wait_for(true: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture
def books(tmp_path: Path, host: CopyHost) -> Iterator[Books]:
    made = Books(tmp_path / "master", host)
    wait_for(lambda: made.sink.in_step)
    yield made
    made.close()


def test_what_is_durable_is_in_the_copy_too(host: CopyHost, books: Books) -> None:
    """GFS §2.6.3: flushed locally and remotely before the client hears of it."""
    for _ in range(20):
        books.add(3)
        assert books.sink.in_step

    host.stop()
    assert host.records() == books.state


def test_the_master_goes_on_without_a_copy_and_brings_it_up_to_date_later(
    host: CopyHost, books: Books
) -> None:
    books.add(5)
    host.stop()
    books.add(5)
    assert not books.sink.in_step

    host.start()
    wait_for(lambda: books.sink.in_step)
    books.add(2)

    host.stop()
    assert host.records() == books.state


def test_a_copy_that_lags_behind_the_oldest_log_gets_a_whole_checkpoint(
    host: CopyHost, books: Books
) -> None:
    books.add(5)
    host.stop()
    for _ in range(3):
        books.add(4)
        books.checkpoint()
    books.add(1)

    host.start()
    wait_for(lambda: books.sink.in_step)

    host.stop()
    assert host.records() == books.state


def test_a_copy_that_knows_what_the_master_never_made_durable_is_made_anew(
    tmp_path: Path, host: CopyHost, books: Books
) -> None:
    """The copy got a record, then the master lost power before its own disk had it."""
    books.add(4)
    books.close()
    with Connection(host.address, MASTER) as connection:
        connection.call(AppendLog("dfs.master", 5, [b"never acknowledged"]))

    again = Books(tmp_path / "master", host)
    again.add(3)
    wait_for(lambda: again.sink.in_step)
    again.add(1)
    again.close()

    host.stop()
    assert host.records() == again.state


def test_under_load_a_copy_gets_in_step(tmp_path: Path, host: CopyHost, books: Books) -> None:
    host.stop()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            books.add(20)

    writer = threading.Thread(target=write)
    writer.start()
    wait_for(lambda: len(books.state) > 100)
    host.start()
    wait_for(lambda: books.sink.in_step)
    stop.set()
    writer.join()

    host.stop()
    assert host.records() == books.state


def test_only_the_master_may_write_a_copy(host: CopyHost, books: Books) -> None:
    """A master that was replaced must not go on writing."""
    books.add(1)
    stranger = Identity("c1", SECRET, "dfs.master", "h9")
    with Connection(host.address, stranger) as connection, pytest.raises(NotTheMaster, match="h9"):
        connection.call(AppendLog("dfs.master", 2, [b"x"]))
