"""Stages 6 and 7 over real sockets: a segment server, a fetcher, and what can go wrong between."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import BulkServer
from mrstream.mapreduce.dataflow import block_codec, merger
from mrstream.mapreduce.dataflow.block_codec import BlockCodec
from mrstream.mapreduce.dataflow.fetched_runs import MergeRule
from mrstream.mapreduce.dataflow.fetcher import Fetcher
from mrstream.mapreduce.dataflow.record_form import FRAMED_RECORDS, TEXT_RECORDS, text_form
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.dataflow.segment_server import SegmentServer
from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, SpillPlan
from mrstream.streaming.records.comparator import BYTE_ORDER

SECRET = b"s" * 32
SERVER = Identity("c1", SECRET, "mapreduce.worker", "h2")
CLIENT = Identity("c1", SECRET)
PARTITIONS = 3


class Heard:
    """A listener that remembers, and that a test can wait for."""

    def __init__(self) -> None:
        self.bytes = 0
        self.failures: list[tuple[str, str, bool]] = []
        self.something_failed = threading.Event()

    def fetched(self, length_bytes: int) -> None:
        self.bytes += length_bytes

    def failed(self, place: SegmentAt, reason: str, *, gone: bool) -> None:
        self.failures.append((place.attempt_id, reason, gone))
        self.something_failed.set()


class Host:
    """One worker's segment files and the server in front of them."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.paths: dict[str, str] = {}
        self.directory = directory
        directory.mkdir()
        self.segments = SegmentServer(self.paths.get)
        self.server = BulkServer(self.segments.serve, SERVER)
        self.address = self.server.start("127.0.0.1:0")

    def write(
        self,
        map_index: int,
        lines: list[bytes],
        number: int = 0,
        codec: BlockCodec = block_codec.NONE,
    ) -> SegmentAt:
        attempt = f"attempt_1_0001_m_{map_index:06}_{number}"
        path = str(self.directory / attempt)
        plan = SpillPlan(sort=SortPlan(PARTITIONS), path=path, capacity_bytes=1 << 20, codec=codec)
        output = MapOutput(plan)
        output.feed(b"".join(lines))
        output.finish()
        self.paths[attempt] = path
        return SegmentAt(map_index, attempt, self.name, self.address)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    made = [Host(f"h{number}", tmp_path / f"h{number}") for number in range(3)]
    yield made
    for host in made:
        host.server.close()


def map_lines(rng: random.Random, map_index: int) -> list[bytes]:
    keys = [rng.randrange(40) for _ in range(rng.randrange(200))]
    return [b"k%02d\tm%d.%d\n" % (key, map_index, n) for n, key in enumerate(keys)]


def new_fetcher(tmp_path: Path, maps: int, heard: Heard, *, memory_bytes: int) -> Fetcher:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    rule = MergeRule(BYTE_ORDER, FRAMED_RECORDS, memory_bytes, str(scratch))
    return Fetcher(1, maps, rule, heard, CLIENT, role="mapreduce.worker", parallel=3)


def merged(fetcher: Fetcher, tmp_path: Path) -> bytes:
    runs = [run.run for run in fetcher.run()]
    whole = merger.merge(
        runs, BYTE_ORDER, text_form(b"\t"), shape=TEXT_RECORDS, scratch=str(tmp_path)
    )
    return b"".join(blob for _, blob in whole.blobs())


def expected(hosts: list[Host], tmp_path: Path, all_lines: list[list[bytes]]) -> bytes:
    """The same partition with nothing fetched: every map's file read where it lies."""
    local = new_fetcher(tmp_path, len(all_lines), Heard(), memory_bytes=1 << 30)
    for index in range(len(all_lines)):
        for host in hosts:
            path = host.paths.get(f"attempt_1_0001_m_{index:06}_0")
            if path:
                local.add(SegmentAt(index, f"m{index}", host.name, "", path))
    return merged(local, tmp_path)


@pytest.mark.parametrize("memory_bytes", [1, 3000, 20_000, 1 << 26])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_fetched_is_what_lies_there_whatever_the_order_and_the_memory(
    hosts: list[Host], tmp_path: Path, memory_bytes: int, seed: int
) -> None:
    """Equal keys come out by map number, then by order of emission, always."""
    rng = random.Random(seed)
    all_lines = [map_lines(rng, index) for index in range(40)]
    places = [rng.choice(hosts).write(index, lines) for index, lines in enumerate(all_lines)]
    heard = Heard()
    fetcher = new_fetcher(tmp_path, len(places), heard, memory_bytes=memory_bytes)

    def tell() -> None:
        for place in rng.sample(places, len(places)):
            fetcher.add(place)

    teller = threading.Thread(target=tell)
    teller.start()
    result = merged(fetcher, tmp_path)
    teller.join()

    assert result == expected(hosts, tmp_path, all_lines)
    assert heard.failures == []
    fetcher.close()
    assert not list((tmp_path / "scratch").glob("fetched-*"))


def test_a_missing_segment_is_told_at_once_and_a_new_place_is_fetched(
    hosts: list[Host], tmp_path: Path
) -> None:
    lines = [b"k\tv\n"] * 5
    lost = hosts[0].write(0, lines)
    del hosts[0].paths[lost.attempt_id]
    heard = Heard()
    fetcher = new_fetcher(tmp_path, 1, heard, memory_bytes=1 << 20)
    fetcher.add(lost)

    def run_again() -> None:
        assert heard.something_failed.wait(60)
        fetcher.withdraw(lost.attempt_id)
        fetcher.add(hosts[1].write(0, lines, number=1))

    runner = threading.Thread(target=run_again)
    runner.start()
    runs = fetcher.run()
    runner.join()

    assert [gone for _, _, gone in heard.failures] == [True]
    assert sum(run.entry.records for run in runs) in (0, 5)


def test_a_flipped_bit_on_disk_is_never_merged(hosts: list[Host], tmp_path: Path) -> None:
    """A corrupt segment is asked for twice, then its map is blamed."""
    place = hosts[0].write(0, [b"k%d\tv\n" % n for n in range(100)])
    path = Path(hosts[0].paths[place.attempt_id])
    content = bytearray(path.read_bytes())
    with_partition = hosts[0].segments._partition(place.attempt_id, 1)[1]
    content[with_partition.offset + with_partition.length - 1] ^= 0x10
    path.write_bytes(content)
    heard = Heard()
    fetcher = new_fetcher(tmp_path, 1, heard, memory_bytes=1 << 20)
    fetcher.add(place)

    def blame() -> None:
        while not any(gone for _, _, gone in heard.failures):
            assert heard.something_failed.wait(60)
            heard.something_failed.clear()
        fetcher.abandon(0)

    blamer = threading.Thread(target=blame)
    blamer.start()
    runs = fetcher.run()
    blamer.join()

    assert runs == []
    assert [gone for _, _, gone in heard.failures] == [False, True]


class BadSectors:
    """A disk that has lost one file: what reads it gets EIO, and nothing else does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        self._path = path
        self._pread, self._sendfile = os.pread, os.sendfile
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "sendfile", self.sendfile)

    def _read(self, descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == self._path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self._read(descriptor)
        return self._pread(descriptor, size, offset)

    def sendfile(self, out: int, descriptor: int, offset: int, count: int) -> int:
        self._read(descriptor)
        return self._sendfile(out, descriptor, offset, count)


def test_a_segment_that_a_disk_cannot_read_any_more_is_blamed_and_no_other(
    hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing disk under the shuffle: the maps beside it are fetched, it is run again."""
    lines = [b"k%d\tv\n" % n for n in range(100)]
    places = [hosts[0].write(index, lines) for index in range(3)]
    wanted = expected(hosts, tmp_path, [lines] * 3)
    os.close(
        hosts[0].segments._partition(places[1].attempt_id, 1)[0]
    )  # its index was read in better days
    BadSectors(monkeypatch, hosts[0].paths[places[1].attempt_id])
    heard = Heard()
    fetcher = new_fetcher(tmp_path, 3, heard, memory_bytes=1 << 20)
    for place in places:
        fetcher.add(place)

    def run_again() -> None:
        assert heard.something_failed.wait(60)
        fetcher.add(hosts[1].write(1, lines, number=1))

    runner = threading.Thread(target=run_again)
    runner.start()
    result = merged(fetcher, tmp_path)
    runner.join()

    assert {attempt for attempt, _, _ in heard.failures} == {places[1].attempt_id}
    assert result == wanted


def test_a_segment_of_this_host_that_cannot_be_read_is_told_at_once(
    hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hosts[0].write(0, [b"k\tv\n"])
    path = hosts[0].paths[place.attempt_id]
    BadSectors(monkeypatch, path)
    heard = Heard()
    fetcher = new_fetcher(tmp_path, 1, heard, memory_bytes=1 << 20)
    fetcher.add(SegmentAt(0, place.attempt_id, "h0", "", path))

    def run_again() -> None:
        assert heard.something_failed.wait(60)
        fetcher.add(hosts[1].write(0, [b"k\tv\n"], number=1))

    runner = threading.Thread(target=run_again)
    runner.start()
    fetcher.run()
    runner.join()

    (failure,) = heard.failures
    assert failure[2] and "Input/output error" in failure[1]


def test_a_host_that_does_not_answer_is_tried_again_until_its_segment_moves(
    hosts: list[Host], tmp_path: Path
) -> None:
    place = hosts[0].write(0, [b"k\tv\n"])
    hosts[0].server.close()
    heard = Heard()
    fetcher = new_fetcher(tmp_path, 1, heard, memory_bytes=1 << 20)
    fetcher.add(place)

    def move() -> None:
        assert heard.something_failed.wait(60)
        fetcher.add(hosts[1].write(0, [b"k\tv\n"], number=1))

    mover = threading.Thread(target=move)
    mover.start()
    fetcher.run()
    mover.join()

    assert heard.failures[0][2] is False


@pytest.mark.parametrize("codec", ["none", "zlib", "lz4", "zstd", "snappy", "bzip2"])
def test_large_partitions_come_whole_in_pages_of_their_own(
    hosts: list[Host], tmp_path: Path, codec: str
) -> None:
    """Packed or not: they are read where they were received, twice, and never copied first."""
    rng = random.Random(1)
    all_lines = [
        [b"k%05d\t%0240x\n" % (n, rng.getrandbits(960)) for n in range(index, 24_000, 3)]
        for index in range(3)
    ]
    places = [
        hosts[index].write(index, lines, codec=block_codec.by_name(codec))
        for index, lines in enumerate(all_lines)
    ]
    fetcher = new_fetcher(tmp_path, len(places), Heard(), memory_bytes=1 << 26)
    for place in places:
        fetcher.add(place)

    assert merged(fetcher, tmp_path) == expected(hosts, tmp_path, all_lines)
    fetcher.close()
