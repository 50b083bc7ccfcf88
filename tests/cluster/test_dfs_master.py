"""Fault gates of the master on real processes: killed at every record, damaged logs, power cuts."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import pytest

from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.cluster.journal.format import (
    FILE_HEADER,
    GROUP_FORMAT_VERSION,
    GROUP_HEADER,
    decode_record,
)
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.recovery import list_logs, log_path
from mrstream.cluster.wire.network import Connection
from mrstream.dfs import oplog, protocol
from mrstream.dfs.chunk import ServerId
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for

Listing = list[tuple[str, int]]
# The gate's own number is 10,000: `make soak`.
OPERATIONS = int(os.environ.get("MRSTREAM_OPERATIONS", "800"))
# The wall clock of a daemon, so many seconds ahead as a file says.
MOVED_CLOCK = """
import time
right = time.time
def moved():
    with open({file!r}) as told:
        return right() + float(told.read() or 0)
time.time = moved
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, 3, dfs={"chunk_size": "256KiB"}) as running:
        yield running


def put(client: DfsClient, path: str, data: bytes) -> None:
    with writer.create(client, path) as file:
        file.write(data)


def read(client: DfsClient, path: str) -> bytes:
    with DfsReader(client, path) as file:
        return file.pread(0, 1 << 30)


def listing(client: DfsClient) -> Listing:
    return [(status.path, status.length_bytes) for status in client.find("/")]


def log_directory(cluster: LocalCluster) -> Path:
    return cluster.host_directory("h1") / MASTER / "oplog"


def newest_log(cluster: LocalCluster) -> Path:
    directory = str(log_directory(cluster))
    return Path(log_path(directory, list_logs(OsDisk(), directory)[-1]))


def record_ends(content: bytes) -> list[int]:
    """Where each record of a log file ends, the header first."""
    marker = content[FILE_HEADER.size - 8 : FILE_HEADER.size - 4]
    is_of_group = content[8] == GROUP_FORMAT_VERSION
    ends = [FILE_HEADER.size + (GROUP_HEADER.size if is_of_group else 0)]
    while (record := decode_record(content, ends[-1], marker)) is not None:
        ends.append(record.end_bytes)
    return ends


def brain_from(directory: Path, cluster_id: str) -> tuple[Metadata, int]:
    """What a master would have after starting on this directory, and the last record of it."""
    journal = Journal(str(directory), cluster_id)
    brain = Metadata(Settings(), random.Random(0))
    found = journal.recover()
    oplog.replay(found, brain)
    journal.close()
    return brain, found.last_sequence


def listing_of(brain: Metadata) -> Listing:
    page = brain.query(protocol.FindTree("/", limit=10_000), 0.0)
    return [(status.path, status.length_bytes) for status in page.entries]


def test_gate_3_a_master_killed_at_every_record_has_exactly_what_it_acknowledged(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Every prefix of the log of a real run, as a kill at that record would leave it; a torn next
    record too. Changes of names are seen whole or not at all."""
    client = cluster.client()
    acknowledged: dict[int, Listing] = {}

    def note() -> None:
        acknowledged[client.report().log_sequence] = listing(client)

    note()
    put(client, "/a/one", b"x" * 600_000)
    note()
    for number in range(3):
        put(client, f"/a/small{number}", b"y")
        note()
    client.rename("/a", "/b")
    note()
    client.delete("/b/small0")
    note()
    client.undelete("/b/small0")
    note()
    client.snapshot("/b", "/c")
    note()
    client.rename("/c/one", "/b/small1", overwrite=True)
    note()
    client.delete("/b", recursive=True, skip_trash=True)
    note()
    cluster.kill(MASTER, "h1")
    content = newest_log(cluster).read_bytes()
    ends = record_ends(content)
    assert len(ends) > 20 and ends[-1] == len(content)

    seen: list[Listing] = []
    for count, end in enumerate(ends):
        following = content[end : end + 11]  # the next record, cut short
        for tail in (b"", following, bytes(40)):
            copy = tmp_path / "copy"
            shutil.copytree(log_directory(cluster), copy)
            (copy / newest_log(cluster).name).write_bytes(content[:end] + tail)
            brain, last = brain_from(copy, cluster.secret.cluster_id)
            shutil.rmtree(copy)
            brain.check_invariants(everything=True)
            assert last == count
        found = listing_of(brain)
        if count in acknowledged:
            assert found == acknowledged[count], f"after record {count}"
        seen.append(found)

    for before, after in itertools.pairwise(seen):
        names = {path for path, _ in before}, {path for path, _ in after}
        is_moved = "/a/one" in names[0] and "/a/one" not in names[1]
        assert not is_moved or {"/b/one", "/b/small0"} <= names[1], "half a rename"
    cluster.start(MASTER, "h1")
    assert listing(cluster.client()) == acknowledged[max(acknowledged)]


@pytest.mark.parametrize("damage", ["torn", "zeros", "garbage"])
def test_gate_5_a_torn_tail_is_cut_off_reported_and_no_reason_to_stop(
    cluster: LocalCluster, damage: str
) -> None:
    client = cluster.client()
    put(client, "/f", b"data")
    before = listing(client)
    cluster.kill(MASTER, "h1")

    log = newest_log(cluster)
    content = log.read_bytes()
    last = record_ends(content)[-2]
    tail = {"torn": content[last:-3], "zeros": bytes(100), "garbage": b"\xa5" * 77}[damage]
    log.write_bytes(content + tail)
    cluster.start(MASTER, "h1")

    assert listing(cluster.client()) == before
    assert "bytes after record" in cluster.output(MASTER, "h1")


def test_gate_8_a_flipped_bit_in_the_acknowledged_log_stops_the_master_and_names_the_place(
    cluster: LocalCluster,
) -> None:
    client = cluster.client()
    for number in range(5):
        put(client, f"/f{number}", b"data")
    cluster.kill(MASTER, "h1")
    log = newest_log(cluster)
    good = log.read_bytes()
    bad = bytearray(good)
    bad[record_ends(good)[3] + 40] ^= 4
    log.write_bytes(bad)

    cluster.launch(MASTER, "h1")

    assert cluster.wait_exit(MASTER, "h1") != 0
    assert "is damaged" in cluster.output(MASTER, "h1")
    assert log.read_bytes() == bytes(bad), "a log that cannot be trusted is left as it is"
    log.write_bytes(good)
    cluster.start(MASTER, "h1")
    assert len(listing(cluster.client())) == 6


def test_gate_8_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    cluster: LocalCluster,
) -> None:
    """GFS-20, GFS-21."""
    client = cluster.client()
    put(client, "/one", b"1")
    client.call(protocol.Checkpoint())
    put(client, "/two", b"2")
    client.call(protocol.Checkpoint())
    put(client, "/three", b"3")
    before = listing(client)
    cluster.kill(MASTER, "h1")

    newest = sorted(log_directory(cluster).glob("checkpoint-*"))[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    cluster.start(MASTER, "h1")

    assert listing(cluster.client()) == before


def test_2_6_3_a_checkpoint_beside_changes_loses_none_of_them(cluster: LocalCluster) -> None:
    """GFS-19: changes go on while checkpoints are built; a kill afterwards costs nothing."""
    client = cluster.client(retry_s=60.0)
    over = threading.Event()
    made: list[str] = []

    def make(number: int) -> None:
        for count in itertools.count():
            if over.is_set():
                return
            client.make_directory(f"/{number}-{count}")
            made.append(f"/{number}-{count}")

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        before = len(made)
        client.call(protocol.Checkpoint())
        wait_for(lambda before=before: len(made) > before, 60.0, "changes to go on")
    over.set()
    for thread in threads:
        thread.join()
    cluster.kill(MASTER, "h1")
    cluster.start(MASTER, "h1")

    assert {path for path, _ in listing(client)} == {"/", *made}


def test_gate_16_sixteen_clients_on_the_same_names_make_one_history(cluster: LocalCluster) -> None:
    """GFS-25: what was acknowledged is in the log once, in an order that real time allows; what
    was refused is not. Each path alternates between being there and not."""
    history: list[tuple[float, float, tuple[int, int], bool]] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        chance = random.Random(number)
        address = cluster.config.master_address(MASTER)
        with Connection(address, cluster.cluster.identity(), role=MASTER) as connection:
            for _ in range(OPERATIONS // 16):
                path = f"/p{chance.randrange(3)}"
                request = chance.choice(
                    [
                        protocol.MakeDirectory(path, "me"),
                        protocol.Delete(path, "me", skip_trash=True),
                        protocol.Rename(path, f"/p{chance.randrange(3)}", "me"),
                    ]
                )
                request_id = (connection.client_id, connection.next_number())
                began_s = time.monotonic()
                try:
                    connection.call(request, 20.0, request_id[1])
                    done = True
                except UserError:
                    done = False
                with lock:
                    history.append((began_s, time.monotonic(), request_id, done))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.kill(MASTER, "h1")

    journal = Journal(str(log_directory(cluster)), cluster.secret.cluster_id)
    records = [oplog.decode_record(payload) for _, payload in journal.recover().records]
    journal.close()
    at = {
        record.request: index
        for index, record in enumerate(records)
        if getattr(record, "request", (0, 0)) != (0, 0)
    }
    assert len(history) == OPERATIONS
    done = sorted((end_s, at[who]) for _, end_s, who, ok in history if ok and who in at)
    ends_s = [end_s for end_s, _ in done]
    latest = [-1, *accumulate((index for _, index in done), max)]
    for began_s, _, who, ok in history:
        if not ok:
            assert who not in at, "refused, and done all the same"
        elif who in at:  # a rename onto itself changes nothing
            assert latest[bisect_left(ends_s, began_s)] < at[who], "not linearizable"
    there: set[str] = set()
    for record in records:
        match record:
            case op.DirectoryMade(path=path):
                assert path not in there
                there.add(path)
            case op.Removed(path=path):
                there.remove(path)
            case op.Renamed(source=source, target=target):
                assert target not in there
                there.remove(source)
                there.add(target)
            case _:
                pass


@pytest.mark.parametrize("order", ["master first", "chunkservers first"])
def test_gate_26_after_a_power_cut_everything_comes_back_in_any_order(
    cluster: LocalCluster, order: str
) -> None:
    client = cluster.client()
    contents = {f"/f{number}": random.Random(number).randbytes(300_000) for number in range(5)}
    for path, data in contents.items():
        put(client, path, data)

    for host in cluster.hosts:
        cluster.kill(CHUNKSERVER, host)
    cluster.kill(MASTER, "h1")
    roles = [(MASTER, "h1"), *((CHUNKSERVER, host) for host in reversed(cluster.hosts))]
    for role, host in roles if order == "master first" else reversed(roles):
        cluster.launch(role, host)
    again = cluster.client()
    wait_for(lambda: _is_whole(again) or None, 60.0, "everything to be there")

    assert {path: read(again, path) for path in contents} == contents


def _is_whole(client: DfsClient) -> bool:
    try:
        report = client.report()
    except Unavailable:
        return False
    return not (report.safe_mode or report.under_replicated or report.missing)


def test_gate_27_data_of_a_newer_format_is_refused_before_it_is_touched(
    cluster: LocalCluster,
) -> None:
    put(cluster.client(), "/f", b"data")
    cluster.kill(MASTER, "h1")
    import struct

    from crc32c import crc32c

    log = newest_log(cluster)
    content = bytearray(log.read_bytes())
    content[8:12] = struct.pack("<I", 99)
    content[FILE_HEADER.size - 4 : FILE_HEADER.size] = struct.pack(
        "<I", crc32c(content[: FILE_HEADER.size - 4])
    )
    log.write_bytes(content)

    cluster.launch(MASTER, "h1")

    assert cluster.wait_exit(MASTER, "h1") == 1
    assert "format 99" in cluster.output(MASTER, "h1")
    assert log.read_bytes() == bytes(content)


def test_gate_13_a_master_stopped_for_a_while_does_not_take_its_servers_for_dead(
    cluster: LocalCluster,
) -> None:
    client = cluster.client()
    put(client, "/f", b"data")

    cluster.signal(MASTER, "h1", signal.SIGSTOP)
    time.sleep(6.0)  # longer than dead_after: the fault itself, not a wait for something
    cluster.signal(MASTER, "h1", signal.SIGCONT)

    assert read(client, "/f") == b"data"
    states = {server.state for server in client.report().servers}
    assert "dead" not in states
    story = " ".join(line.text for line in client.story("/f"))
    assert "is dead" not in story


def test_gate_13_clocks_that_jump_an_hour_and_differ_change_no_lease(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The master's and one chunkserver's, forward and back, one at a time, while a file is written
    and others are read."""
    told = {role: tmp_path / role for role in (MASTER, CHUNKSERVER)}
    for role, file in told.items():
        file.write_text("0")
        cluster.kill(role, "h1")
        cluster.start(role, "h1", MOVED_CLOCK.format(file=str(file)))
    client = cluster.client()
    wait_for(lambda: _is_whole(client) or None, 60.0, "all servers to be there")
    deaths = sum("is dead" in line.text for line in client.story("/"))
    written = b""

    with writer.create(client, "/f") as file:
        for role, hours in itertools.product(told, (1, -1, 0)):
            told[role].write_text(str(3600 * hours))
            put(client, f"/{role}{hours}", b"beside")
            piece = random.Random(hours).randbytes(200_000)
            file.write(piece)
            file.flush()
            written += piece
            assert read(client, f"/{role}{hours}") == b"beside"

    assert read(client, "/f") == written
    assert sum("is dead" in line.text for line in client.story("/")) == deaths
    assert _is_whole(client)


def test_gate_7_a_full_disk_under_the_log_acknowledges_nothing_and_passes(tmp_path: Path) -> None:
    """Nothing is acknowledged that is not in the log. What there is can be read and deleted
    meanwhile, other changes are refused with the reason; all goes on when there is room, without a
    restart."""
    place = tmp_path / "hosts/test/h1" / MASTER
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    subprocess.run(mount, check=True)
    try:
        with LocalCluster(tmp_path, 1) as cluster:
            client = cluster.client(retry_s=2.0)
            put(client, "/before", b"kept")
            with open(place / "filler", "wb", buffering=0) as filler, suppress(OSError):
                while filler.write(b"f" * 4096):
                    pass

            acknowledged = _until_refused(client)
            with pytest.raises(Unavailable, match="cannot log a change: no space left in"):
                put(client, "/more", b"x")
            assert read(client, "/before") == b"kept"
            assert {path for path, _ in listing(client)} == {"/", "/before", *acknowledged}
            client.delete("/d0", recursive=False, skip_trash=True)
            acknowledged.remove("/d0")
            assert client.stat("/d1").is_directory
            (place / "filler").unlink()
            wait_for(lambda: _makes(client, "/after"), 60.0, "room for the log")
            assert read(client, "/before") == b"kept"
            cluster.kill(MASTER, "h1")
            cluster.start(MASTER, "h1")

            names = {path for path, _ in listing(cluster.client())}
            assert {"/before", "/after", *acknowledged} <= names
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _until_refused(client: DfsClient) -> list[str]:
    """Make directories until one is not acknowledged in time."""
    for number in range(20_000):
        if not _makes(client, f"/d{number}"):
            return [f"/d{made}" for made in range(number)]
    raise AssertionError("a full disk was never noticed")


def _makes(client: DfsClient, path: str) -> bool:
    try:
        client.make_directory(path)
    except ClusterError as error:
        assert isinstance(error, Unavailable) or "exists" in str(error), error
        return not isinstance(error, Unavailable)
    return True


def test_5_1_3_a_refused_question_is_a_clear_error_and_the_master_lives(
    cluster: LocalCluster,
) -> None:
    """Bad input: names with .., NUL and 10 KB, a million of anything."""
    client = cluster.client()
    bad: list[str] = ["relative", "/a/../b", "/a\0b", "/" + "x" * 10_000, "/" + "y/" * 1000]

    for path in bad:
        with pytest.raises(ClusterError) as refusal:
            client.stat(path)
        assert "path" in str(refusal.value) or "name" in str(refusal.value)
    with pytest.raises(ClusterError, match="neither a path nor"):
        client.story("no such thing")
    with pytest.raises(ClusterError, match="no such chunkserver"):
        client.call(protocol.DrainServer(ServerId("h99")))

    assert client.report().safe_mode == ""
