"""A chunkserver's replicas over several disks."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from mrstream.cluster.disk import OsDisk, OsFile
from mrstream.cluster.errors import DiskFailed, NewerFormat, Overloaded, WrongCluster
from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.chunks.chunk_store import ChunkStore, Reserve
from mrstream.dfs.chunks.replica import path_of
from mrstream.dfs.errors import ChunkCorrupt, DiskFull, NoSuchChunk, StaleReplica
from tests.support.forgetful_disk import ForgetfulDisk


def store_of(*disks: ForgetfulDisk | OsDisk, reserve: Reserve | None = None) -> ChunkStore:
    return ChunkStore(disks, cluster="c1", server="h1", reserve=reserve)


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    """GFS-02: a replica is an ordinary file; GFS-74: there is no clean shutdown."""
    store = store_of(OsDisk(str(tmp_path)))
    replica = store.create(7, 1)
    store.write(replica, 0, [b"hello ", b"world"])

    again = store_of(OsDisk(str(tmp_path)))

    assert [tuple(report) for report in again.reports()] == [(7, 1, 11)]
    assert bytes(again.read(again.get(7, 1), 6, 100)) == b"world"
    assert (tmp_path / path_of(7, "data")).read_bytes() == b"hello world"


def test_chunks_go_to_the_disk_with_most_room() -> None:
    small, large = ForgetfulDisk(name="small", capacity_bytes=1 << 20), ForgetfulDisk(name="large")
    store = store_of(small, large)

    replica = store.create(1, 1)

    assert replica.disk is large


def test_another_version_is_stale() -> None:
    """GFS-73: the version is checked by the receiver."""
    store = store_of(ForgetfulDisk())
    store.create(1, 3)

    with pytest.raises(StaleReplica, match="version 3, the request 2"):
        store.get(1, 2)


def test_the_reserve_is_never_used() -> None:
    """Fault gate 7: a full disk is a clear error, and nothing half-written is visible."""
    disk = ForgetfulDisk(capacity_bytes=1 << 20)
    store = store_of(disk, reserve=Reserve(fraction=0.5))
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x" * 1000])

    with pytest.raises(DiskFull, match="free beyond the reserve"):
        store.write(replica, 1000, [b"y" * (600 << 10)])

    assert bytes(store.read(replica, 0, 1 << 20)) == b"x" * 1000
    disk.capacity_bytes = 1 << 22
    assert store.write(replica, 1000, [b"y" * (600 << 10)]) == 1000 + (600 << 10)


def test_enospc_from_the_disk_leaves_the_replica_as_it_was() -> None:
    disk = ForgetfulDisk(capacity_bytes=1 << 30)
    store = store_of(disk, reserve=Reserve(fraction=0.0))
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x" * 1000])

    def full(action: str, path: str) -> None:
        if action == "write" and path.endswith(".sums"):
            raise OSError(errno.ENOSPC, "no space left on device")

    disk.before_step = full
    with pytest.raises(DiskFull):
        store.write(replica, 1000, [b"y" * 200_000])
    disk.before_step = None

    assert replica.length == 1000
    assert store.write(replica, 1000, [b"z" * 10]) == 1010
    assert bytes(store.read(replica, 990, 100)) == b"x" * 10 + b"z" * 10


def test_a_failing_fsync_stops_the_server() -> None:
    """Fault gate 6: nobody can tell what the disk kept, so nothing more is acknowledged."""
    disk = ForgetfulDisk()
    store = store_of(disk)
    replica = store.create(1, 1)

    def broken(action: str, path: str) -> None:
        if action == "sync":
            raise OSError(errno.EIO, "input/output error")

    disk.before_step = broken
    with pytest.raises(DiskFailed, match="fsync on memory failed"):
        store.write(replica, 0, [b"x"])


def test_a_failed_disk_is_taken_out_and_the_rest_serve_on() -> None:
    bad, good = ForgetfulDisk(name="bad", capacity_bytes=1 << 41), ForgetfulDisk(name="good")
    store = store_of(bad, good)
    lost = store.create(1, 1)
    bad.capacity_bytes = 1
    kept = store.create(2, 1)
    assert (lost.disk, kept.disk) == (bad, good)

    def broken(action: str, path: str) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    bad.capacity_bytes = 1 << 41
    bad.before_step = broken
    with pytest.raises(NoSuchChunk, match="failed and is out"):
        store.write(lost, 0, [b"x"])

    assert store.handles() == [2]
    assert {use.name: bool(use.failure) for use in store.uses()} == {"bad": True, "good": False}
    assert store.write(kept, 0, [b"x"]) == 1


def test_a_disk_that_is_bad_at_the_start_is_left_out(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the disk should be mounted")

    store = store_of(OsDisk(str(blocked)), OsDisk(str(tmp_path / "good")))

    assert [use.name for use in store.uses() if use.failure] == [str(blocked)]
    store.create(1, 1)


def test_a_disk_of_another_cluster_or_a_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    """Fault gates 26 and 27."""
    store_of(OsDisk(str(tmp_path)))
    identity = tmp_path / "identity"
    before = identity.read_text()

    with pytest.raises(WrongCluster, match="belongs to cluster c1"):
        ChunkStore([OsDisk(str(tmp_path))], cluster="c2", server="h1")
    identity.write_text(before.replace('"format": 1', '"format": 2'))
    with pytest.raises(NewerFormat, match="format 2"):
        store_of(OsDisk(str(tmp_path)))


def test_swapped_files_are_caught(tmp_path: Path) -> None:
    """Fault gates 9 and 10: a replica under another's name is never served."""
    store = store_of(OsDisk(str(tmp_path)))
    for handle in (0x101, 0x201):
        store.write(store.create(handle, 1), 0, [bytes([handle >> 8]) * 100])
    for suffix in ("data", "sums"):
        one, two = tmp_path / path_of(0x101, suffix), tmp_path / path_of(0x201, suffix)
        one.rename(tmp_path / "aside")
        two.rename(one)
        (tmp_path / "aside").rename(two)

    again = store_of(OsDisk(str(tmp_path)))

    assert sorted(again.corrupt()) == [0x101, 0x201]
    with pytest.raises(ChunkCorrupt):
        again.get(0x101)


def test_a_misdirected_block_is_caught_even_with_its_checksum(tmp_path: Path) -> None:
    """Fault gate 10: checksums are bound to chunk and place."""
    store = store_of(OsDisk(str(tmp_path)))
    for handle in (0x101, 0x201):
        store.write(store.create(handle, 1), 0, [bytes([handle >> 8]) * (2 * BLOCK_BYTES)])
    for suffix, start, size in (("data", 0, BLOCK_BYTES), ("sums", 1024, 4)):
        source, target = tmp_path / path_of(0x101, suffix), tmp_path / path_of(0x201, suffix)
        content = bytearray(target.read_bytes())
        content[start : start + size] = source.read_bytes()[start : start + size]
        target.write_bytes(content)

    with pytest.raises(ChunkCorrupt, match="block 0 has crc"):
        store.read(store.get(0x201), 0, 10)
    assert list(store.corrupt()) == [0x201]


def test_a_deleted_data_file_is_named(tmp_path: Path) -> None:
    """Fault gate 9."""
    store = store_of(OsDisk(str(tmp_path)))
    store.write(store.create(5, 1), 0, [b"x"])
    (tmp_path / path_of(5, "data")).unlink()

    with pytest.raises(ChunkCorrupt, match="is gone"):
        store.read(store.get(5), 0, 1)


def test_a_corrupt_replica_stays_until_its_copy_has_settled() -> None:
    """GFS §5.2: only after the new replica is in place is the bad one deleted."""
    disk = ForgetfulDisk()
    store = store_of(disk)
    store.write(store.create(5, 1), 0, [b"good bytes"])
    disk.flip_bit(path_of(5, "data"), 3)
    with pytest.raises(ChunkCorrupt):
        store.read(store.get(5), 0, 10)

    incoming = store.receive(5, 1, 10)
    store.write(incoming, 0, [b"good bytes"])
    assert list(store.corrupt()) == [5]
    store.settle(incoming)

    assert store.corrupt() == {}
    assert bytes(store.read(store_of(disk).get(5), 0, 10)) == b"good bytes"


def test_a_copy_that_a_restart_cut_short_is_forgotten() -> None:
    disk = ForgetfulDisk()
    store = store_of(disk)
    store.write(store.receive(5, 1, 10), 0, [b"half"])

    again = store_of(disk)

    assert again.reports() == []
    assert disk.list("incoming") == []


def test_a_copy_under_a_new_handle_is_independent() -> None:
    """GFS §3.4: the chunk is copied on the same server."""
    store = store_of(ForgetfulDisk())
    store.write(store.create(1, 4), 0, [b"a" * 100_000])

    copy = store.copy(1, 2, 1, length=70_000)
    store.write(copy, 0, [b"b"])

    assert (copy.version, copy.length) == (1, 70_000)
    assert bytes(store.read(store.get(1), 0, 1)) == b"a"
    assert bytes(store.read(copy, 0, 2)) == b"ba"


def test_an_overwrite_first_verifies_the_blocks_it_changes_in_part() -> None:
    """GFS-81: else its new checksum would cover up old damage."""
    disk = ForgetfulDisk()
    store = store_of(disk)
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x" * 1000])
    disk.flip_bit(path_of(1, "data"), 8 * 900)

    with pytest.raises(ChunkCorrupt):
        store.write(replica, 0, [b"y" * 10])
    assert list(store.corrupt()) == [1]


def test_an_append_keeps_old_damage_visible() -> None:
    """GFS-80: the tail's checksum is continued, not computed anew."""
    disk = ForgetfulDisk()
    store = store_of(disk)
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x" * 1000])
    disk.flip_bit(path_of(1, "data"), 8 * 900)

    store.write(replica, 1000, [b"y" * 10])

    with pytest.raises(ChunkCorrupt):
        store.read(replica, 1000, 10)


def test_truncating_forgets_bytes_and_writing_goes_on_there() -> None:
    """Sealing cuts replicas to what all of them have."""
    disk = ForgetfulDisk()
    store = store_of(disk)
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x" * 100_000])

    replica.truncate(70_000)
    store.write(replica, 70_001, [b"y"])

    again = store_of(disk)
    assert bytes(again.read(again.get(1), 69_999, 10)) == b"x\0y"


def test_a_data_file_that_is_gone_or_short_is_found_at_the_start(tmp_path: Path) -> None:
    """Fault gate 9: without reading the data."""
    store = store_of(OsDisk(str(tmp_path)))
    for handle in (1, 2):
        store.write(store.create(handle, 1), 0, [b"x" * 1000])
    (tmp_path / path_of(1, "data")).unlink()
    os.truncate(tmp_path / path_of(2, "data"), 999)

    again = store_of(OsDisk(str(tmp_path)))

    assert sorted(again.corrupt()) == [1, 2]


def test_half_a_creation_is_no_replica(tmp_path: Path) -> None:
    """A power cut may keep one name of the two; nothing was ever acknowledged on it."""
    store = store_of(OsDisk(str(tmp_path)))
    for handle in (1, 2):
        store.create(handle, 1)
    (tmp_path / path_of(1, "data")).unlink()
    (tmp_path / path_of(2, "sums")).unlink()

    again = store_of(OsDisk(str(tmp_path)))

    assert (again.handles(), again.corrupt()) == ([], {})
    assert not (tmp_path / path_of(1, "sums")).exists()
    assert not (tmp_path / path_of(2, "data")).exists()


def test_after_a_power_cut_rot_is_not_taken_for_a_write_that_was_cut_short() -> None:
    """Both headers say the same soon after a sync, so a damaged replica is never shortened."""
    disk = ForgetfulDisk()
    store = store_of(disk)
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x" * 200_000])
    store.write(replica, 200_000, [])
    for path in (path_of(1, "sums"), path_of(1, "data")):
        disk.open(path).sync()
    disk.crash(random.Random(1))
    disk.flip_bit(path_of(1, "data"), 8 * 150_000)

    again = store_of(disk)

    assert again.get(1).length == 200_000
    with pytest.raises(ChunkCorrupt):
        again.read(again.get(1), 0, 200_000)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_killed_server_made_is_named_for_good_when_it_is_next_synced(seed: int) -> None:
    """It was killed before its first sync, started again, and took a new version, durably; then the
    power failed, and the file with the checksums had lost its name: nobody had synced the directory
    (seed 672 of the simulator)."""
    disk = ForgetfulDisk()
    store = store_of(disk)
    store.write(store.create(1, 1), 0, [b"x" * 1000], durable=False)
    again = store_of(disk)
    again.get(1).set_version(2)

    disk.crash(random.Random(seed))

    assert [tuple(report) for report in store_of(disk).reports()] == [(1, 2, 1000)]


def test_of_two_copies_on_two_disks_the_better_one_counts() -> None:
    """A power cut may bring back the replica that a clone on another disk has replaced."""
    one, two = ForgetfulDisk(name="one", capacity_bytes=1 << 41), ForgetfulDisk(name="two")
    store_of(one).write(store_of(one).create(1, 1), 0, [b"old"])
    newer = store_of(two)
    newer.write(newer.create(1, 2), 0, [b"newer"])
    newer.write(newer.create(2, 1), 0, [b"good"])
    bad = store_of(one)
    bad.write(bad.create(2, 1), 0, [b"good"])
    one.flip_bit(path_of(2, "sums"), 100)
    one.flip_bit(path_of(2, "sums"), 512 * 8 + 100)

    both = store_of(one, two)

    assert [tuple(report) for report in both.reports()] == [(1, 2, 5), (2, 1, 4)]
    assert both.corrupt() == {}
    assert not one.exists(path_of(1, "data")) and not one.exists(path_of(2, "data"))


def test_a_write_to_a_replica_whose_file_is_gone_is_corruption_not_a_crash(tmp_path: Path) -> None:
    """Fault gate 9: somebody deleted a chunk file that is being appended to."""
    store = store_of(OsDisk(str(tmp_path)))
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x"])
    (tmp_path / path_of(1, "data")).unlink()

    with pytest.raises(ChunkCorrupt, match="is gone"):
        store.write(replica, 1, [b"y"])

    assert list(store.corrupt()) == [1]


def test_a_disk_that_is_no_longer_mounted_is_taken_out(tmp_path: Path) -> None:
    store = store_of(OsDisk(str(tmp_path / "one")), OsDisk(str(tmp_path / "two")))
    replica = store.create(1, 1)
    store.write(replica, 0, [b"x"])
    os.rename(replica.disk.name, tmp_path / "unplugged")
    os.mkdir(replica.disk.name)

    with pytest.raises(NoSuchChunk):
        store.write(replica, 1, [b"y"])

    assert store.take_lost() == [1]
    assert store.create(2, 1).disk is not replica.disk


@pytest.mark.parametrize("kind", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_machine_short_of_descriptors_or_memory_costs_no_disk_and_no_replica(
    kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passes is refused for the moment; taking the disk out would lose every replica on it."""

    def refuse(disk: OsDisk, path: str, **_: bool) -> OsFile:
        raise OSError(kind, os.strerror(kind))

    store = store_of(OsDisk(str(tmp_path)))
    replica = store.create(1, 1)
    store.write(replica, 0, [b"kept"])
    with monkeypatch.context() as short:
        short.setattr(OsDisk, "open", refuse)
        for attempt in (
            lambda: store.create(2, 1),
            lambda: store.write(replica, 4, [b"more"]),
            lambda: store.read(replica, 0, 4),
        ):
            with pytest.raises(Overloaded):
                attempt()

    assert [tuple(report) for report in store.reports()] == [(1, 1, 4)]
    assert bytes(store.read(replica, 0, 4)) == b"kept"
    assert not any(use.failure for use in store.uses())
