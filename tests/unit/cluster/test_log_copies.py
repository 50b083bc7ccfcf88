"""Copies of a master's log on other hosts (GFS §2.6.3, GFS-16), over real connections."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from mrstream.cluster.config.config import CHUNKSERVER, Cluster, ClusterConfig, HostConfig
from mrstream.cluster.config.state import NEW_MARK, Secret
from mrstream.cluster.copies import log_check
from mrstream.cluster.copies.log_check import LogBehind, WayBack, look_and_compare
from mrstream.cluster.copies.log_sink import LogSink
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import JournalCorrupt, Unavailable, UserError
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.log_copy import (
    AppendLog,
    BeginCopy,
    CopyGoesFurther,
    EndCopy,
    LogCopies,
    LogPosition,
    NotTheMaster,
    newest_copy,
)
from mrstream.cluster.journal.recovery import Recovery
from mrstream.cluster.wire.messages import Metrics, Request
from mrstream.cluster.wire.network import Connection, Handler, Identity, Server, new_event_loop
from tests.unit.cluster.test_daemon import own_address

SECRET = b"k" * 32
MASTER = Identity("c1", SECRET, "dfs.master", "h1")
HOSTS = tuple(HostConfig(name, own_address()) for name in ("h1", "h2"))
CONFIG = ClusterConfig("c", "h1", HOSTS)
WAY_BACK = WayBack(CONFIG, "h1", "/journal")


class CopyHost:
    """A daemon that keeps copies; it can be stopped and started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = "127.0.0.1:0"
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server: Server | None = None
        self.stored_count = 0

    def start(self, handlers: Mapping[type[Request], Handler] | None = None) -> None:
        """Keep copies, or answer otherwise."""
        self._copies = LogCopies(
            str(self.directory), "c1", lambda peer: (peer.role, peer.host) == ("dfs.master", "h1")
        )
        self._server = Server(
            {
                **self._copies.handlers,
                Metrics: lambda request, peer: {"chunks": float(self.stored_count)},
                **(handlers or {}),
            },
            Identity("c1", SECRET, "dfs.chunkserver", "h2"),
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

    def files(self) -> dict[str, bytes]:
        """Every byte that it keeps."""
        return files_below(self.directory)

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


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


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
        self.refused: list[LogBehind] = []
        self.sink = LogSink("h2", host.address, MASTER, self.journal, WAY_BACK, self.refused.append)
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


def test_a_copy_that_goes_further_than_the_log_is_left_alone_and_the_master_ends(
    tmp_path: Path, host: CopyHost, books: Books
) -> None:
    """Total loss: a log that was cut or put back from a backup was copied over the whole ones."""
    books.add(4)
    books.close()
    with Connection(host.address, MASTER) as connection:
        connection.call(AppendLog("dfs.master", 5, [b"acknowledged"]))
    before = host.files()

    again = Books(tmp_path / "master", host)
    wait_for(lambda: again.refused)
    again.close()

    assert str(again.refused[0]) == (
        "the log on h1 ends at record 4, but h2 has a copy of it up to record 5: nothing was "
        "changed; `mrstream cluster restore --master h1` brings back all that any host still has"
    )
    assert host.files() == before


def test_a_copy_with_another_record_than_the_log_is_left_alone_and_the_master_ends(
    tmp_path: Path, host: CopyHost, books: Books
) -> None:
    """An old log that went on while the copy's host was down is as long, but not the same."""
    books.add(4)
    books.close()
    with Connection(host.address, MASTER) as connection:
        connection.call(AppendLog("dfs.master", 5, [b"acknowledged"]))
    before = host.files()
    host.stop()
    again = Books(tmp_path / "master", host)
    again.add(3)

    host.start()
    wait_for(lambda: again.refused)
    again.close()

    assert "record 5 of the log on h1 is not the one that the copy on h2 has" in str(
        again.refused[0]
    )
    assert host.files() == before


def test_a_copy_does_not_let_itself_be_replaced_by_a_shorter_log(
    host: CopyHost, books: Books
) -> None:
    """Whatever the sender believes; one of an older version does not say how far its log goes."""
    books.add(4)
    before = host.files()

    with Connection(host.address, MASTER) as connection:
        with pytest.raises(CopyGoesFurther, match=r"goes to record 4, the log .* to 3"):
            connection.call(BeginCopy("dfs.master", 0, 3))
        assert connection.call(LogPosition("dfs.master")).sequence == 4

    assert host.files() == before


def test_a_damaged_copy_is_made_anew(host: CopyHost, books: Books) -> None:
    books.add(4)
    host.stop()
    damage(host)

    host.start()
    books.add(1)
    wait_for(lambda: books.sink.in_step)

    host.stop()
    assert host.records() == books.state and not books.refused


def damage(host: CopyHost) -> None:
    path = newest_copy(str(host.directory / "dfs.master"))
    assert path is not None
    log = next(Path(path).glob("log-*"))
    content = bytearray(log.read_bytes())
    content[8] = 99  # the header's checksum shows it
    log.write_bytes(content)


def test_a_damaged_copy_is_kept_aside_and_leaves_the_doubt(host: CopyHost, books: Books) -> None:
    """Nobody can tell any more what it had beyond the log."""
    books.add(3)
    host.stop()
    damage(host)
    (log,) = host.directory.rglob("log-*")
    damaged = log.read_bytes()
    host.start()
    books.add(1)

    wait_for(lambda: books.sink.in_step)

    assert not books.sink.is_compared
    (kept,) = host.directory.glob("dfs.master/damaged-*/log-*")
    assert kept.read_bytes() == damaged


def test_only_the_sink_itself_finds_that_the_log_is_behind(tmp_path: Path) -> None:
    """`LogBehind` ends the master: a peer that names it on the wire must not."""

    def lie(request: LogPosition, peer: object) -> None:
        raise LogBehind("says who?")

    liar = CopyHost(tmp_path / "liar")
    liar.start({LogPosition: lie})
    books = Books(tmp_path / "own", liar)
    wait_for(lambda: books.sink._said.endswith("says who?"))

    assert books.refused == []
    books.close()
    liar.close()


@pytest.mark.parametrize(
    "request_",
    [LogPosition("a" * 300), AppendLog("dfs.master", 1, []), BeginCopy("dfs.master", -5)],
)
def test_a_request_that_makes_no_sense_is_refused(host: CopyHost, request_: Request) -> None:
    with Connection(host.address, MASTER) as connection:
        connection.call(BeginCopy("dfs.master", 0))
        connection.call(EndCopy("dfs.master"))

        with pytest.raises(UserError):
            connection.call(request_)


def test_a_copy_that_cannot_be_written_is_done_without(host: CopyHost) -> None:
    """A full disk, say: the daemon that keeps it goes on, and so does the master."""
    with Connection(host.address, MASTER) as connection:
        connection.call(LogPosition("dfs.master"))
        (host.directory / "dfs.master").rmdir()
        (host.directory / "dfs.master").write_bytes(b"")

        with pytest.raises(Unavailable, match="cannot be written"):
            connection.call(BeginCopy("dfs.master", 0))


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


# --- before a master serves


class Start:
    """A master on h1 that is about to start. Whoever asks its host gets the answers of h2, too."""

    def __init__(self, directory: Path, host: CopyHost) -> None:
        self.directory = directory
        _, port = host.address.split(":")
        base = int(port) - CONFIG.port(CHUNKSERVER) + CONFIG.base_port
        config = ClusterConfig("c", "h1", HOSTS[::-1], base_port=base)
        secret = Secret("c1", SECRET)
        self.daemon = Daemon("dfs.master", Cluster(config, secret), HOSTS[0], str(directory))
        self.journal_directory = directory / "dfs.master" / "oplog"
        self.journal_directory.parent.mkdir(parents=True, exist_ok=True)

    def look(self) -> Recovery:
        journal = Journal(str(self.journal_directory), "c1")
        loop = self.daemon.loop
        return loop.run_until_complete(look_and_compare(self.daemon, journal, "chunks"))

    def refused(self) -> str:
        """What it refuses with, having changed nothing."""
        before = files_below(self.directory)
        with pytest.raises(LogBehind) as refusal:
            self.look()
        assert files_below(self.directory) == before
        return str(refusal.value)


@pytest.fixture
def start(tmp_path: Path, host: CopyHost) -> Iterator[Start]:
    host.stop()
    host.address = f"{own_address()}:0"
    host.start()
    made = Start(tmp_path / "h1", host)
    yield made
    made.daemon.loop.close()


def written(directory: Path, host: CopyHost, count: int) -> None:
    """A master was at work there, with a copy on the host."""
    books = Books(directory, host)
    wait_for(lambda: books.sink.in_step)
    for _ in range(count):
        books.add(1)
    books.close()


def test_a_master_whose_log_is_the_longest_may_serve(host: CopyHost, start: Start) -> None:
    written(start.journal_directory, host, 3)

    assert start.look().last_sequence == 3


def test_a_master_without_a_log_does_not_begin_a_new_one_where_a_copy_is(
    tmp_path: Path, host: CopyHost, start: Start
) -> None:
    written(tmp_path / "elsewhere", host, 3)

    assert "the log on h1 is gone, but h2 has a copy of it up to record 3" in start.refused()


def test_a_master_with_a_shorter_log_than_a_copy_does_not_serve(
    tmp_path: Path, host: CopyHost, start: Start
) -> None:
    """A copy on whatever host, not only on those that keep one now."""
    written(start.journal_directory, host, 3)
    log = next(start.journal_directory.glob("log-*"))
    log.write_bytes(log.read_bytes()[:-1])

    assert "ends at record 2, but h2 has a copy of it up to record 3" in start.refused()


def test_a_master_with_another_log_than_a_copy_does_not_serve(
    tmp_path: Path, host: CopyHost, start: Start
) -> None:
    written(tmp_path / "elsewhere", host, 3)
    journal = Journal(str(start.journal_directory), "c1")
    journal.recover()
    for payload in (b"r1", b"r2", b"another", b"r4"):
        journal.append(payload)
    journal.close()

    assert "record 3 of the log on h1 is not the one that the copy on h2 has" in start.refused()


def test_a_master_without_a_log_does_not_begin_a_new_one_where_chunks_are(
    host: CopyHost, start: Start
) -> None:
    """Without copies it says what is left to do, and how one does want a new file system."""
    host.stored_count = 12

    said = start.refused()

    assert "the log on h1 is gone and no host has a good copy, but h2 has 12 chunks of it" in said
    assert f"put {start.journal_directory} back from a backup" in said
    assert "`mrstream cluster down --purge`" in said


def test_a_master_without_a_log_does_not_begin_a_new_one_where_a_copy_is_damaged(
    tmp_path: Path, host: CopyHost, start: Start
) -> None:
    written(tmp_path / "elsewhere", host, 3)
    host.stop()
    damage(host)
    host.start()

    assert "its copy on h2 is damaged" in start.refused()


def test_a_master_without_a_log_wants_to_hear_from_every_host(
    host: CopyHost, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is down may have the only copy; with a log of its own it does not wait."""
    host.stop()
    monkeypatch.setattr(log_check, "ANYONE_S_MAX", 0.2)
    monkeypatch.setattr(log_check, "FOUNDING_S_MAX", 0.3)

    assert "h2 does not say whether it has a copy" in start.refused()

    journal = Journal(str(start.journal_directory), "c1")
    journal.recover()
    journal.append(b"a")
    journal.close()
    monkeypatch.setattr(log_check, "COPIES_S_MAX", 0.3)
    assert start.look().last_sequence == 1


def test_a_master_waits_for_hosts_that_are_coming_up(host: CopyHost, start: Start) -> None:
    """The first `up`, or the first after a power cut: all daemons start at the same moment."""
    host.stop()
    threading.Timer(0.3, host.start).start()

    assert start.look().last_sequence == 0


def test_a_new_cluster_waits_for_nobody(
    host: CopyHost, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` knows that nothing can be anywhere; the mark is good for one log, not for a second."""
    host.stop()
    monkeypatch.setattr(log_check, "ANYONE_S_MAX", 0.2)
    monkeypatch.setattr(log_check, "FOUNDING_S_MAX", 0.3)
    (start.directory / "dfs.master" / NEW_MARK).touch()

    assert start.look().last_sequence == 0

    assert "h2 does not say" in start.refused()


def test_a_master_whose_log_cannot_be_read_names_the_way_back(host: CopyHost, start: Start) -> None:
    written(start.journal_directory, host, 3)
    log = next(start.journal_directory.glob("log-*"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)

    with pytest.raises(
        JournalCorrupt, match=r"damaged.*`mrstream cluster restore --master h1` brings"
    ):
        start.look()
