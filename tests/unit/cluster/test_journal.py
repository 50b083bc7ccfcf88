"""The journal: what was durable comes back, what was not may, and nothing else ever does."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.cluster.disk import OsDisk
from mrstream.cluster.disk import opened as opened_file
from mrstream.cluster.errors import DiskFailed, JournalCorrupt, NewerFormat, WrongCluster
from mrstream.cluster.journal.checkpoint import checkpoint_path, list_checkpoints
from mrstream.cluster.journal.format import FILE_HEADER, RECORD_HEADER
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.recovery import list_logs, log_path
from mrstream.cluster.wire.network import new_event_loop
from tests.cluster.local import wait_for
from tests.support.forgetful_disk import ForgetfulDisk

DIRECTORY = "/j"


def opened(disk: ForgetfulDisk | None = None, directory: str = DIRECTORY) -> Journal:
    journal = Journal(directory, "c1", disk=disk)
    journal.recover()
    return journal


def contents(disk: ForgetfulDisk | OsDisk, directory: str = DIRECTORY) -> list[bytes]:
    """Recover and return checkpoint and records, as the state is rebuilt."""
    journal = Journal(directory, "c1", disk=disk)
    found = journal.recover()
    state = b"".join(found.checkpoint).split(b"\n")[:-1]
    state += [payload for _, payload in found.records]
    journal.close()
    return state


def add_bytes(disk: ForgetfulDisk, path: str, data: bytes) -> None:
    file = disk.open(path, write=True)
    file.write(data, file.size())


def with_records(disk: ForgetfulDisk, count: int, commit_every: int = 1) -> None:
    journal = opened(disk)
    for n in range(1, count + 1):
        journal.append(b"r%d" % n)
        if n % commit_every == 0:
            journal.commit()
    journal.close()


def test_records_come_back_in_order(tmp_path: Path) -> None:
    journal = opened(None, str(tmp_path))
    journal.start()
    for n in range(1, 1001):
        assert journal.append(b"r%d" % n) == n
    assert journal.wait_durable(1000, 10)
    assert journal.durable == 1000
    journal.close()

    assert contents(OsDisk(), str(tmp_path)) == [b"r%d" % n for n in range(1, 1001)]


def test_a_loop_waits_for_durability_and_batches_share_one_sync(tmp_path: Path) -> None:
    """Decision 5: group commit."""
    loop = new_event_loop()
    disk = ForgetfulDisk()
    journal = opened(disk)

    async def main() -> None:
        journal.start(loop)
        before = disk.syncs
        futures = [journal.when_durable(journal.append(b"x")) for _ in range(500)]
        await asyncio.wait_for(asyncio.gather(*futures), 60)
        assert disk.syncs - before < 100
        await journal.when_durable(3)

    loop.run_until_complete(main())
    journal.close()
    loop.close()


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_torn_tail_is_cut_off_and_reported(cut: int) -> None:
    """Fault gate 5: truncated anywhere within the last record."""
    disk = ForgetfulDisk()
    with_records(disk, 3)
    path = log_path(DIRECTORY, 1)
    record_bytes = RECORD_HEADER.size + 2
    disk.open(path).truncate(len(disk.contents(path)) - min(cut, record_bytes))

    journal = Journal(DIRECTORY, "c1", disk=disk)
    found = journal.recover()

    assert [p for _, p in found.records] == [b"r1", b"r2"]
    assert bool(found.torn) == (cut < record_bytes)
    assert journal.append(b"again") == 3
    journal.commit()
    assert contents(disk) == [b"r1", b"r2", b"again"]


def test_a_zero_filled_tail_is_torn_not_corrupt() -> None:
    """Fault gate 5: a file system may leave zeros where the data never came."""
    disk = ForgetfulDisk()
    with_records(disk, 3)
    add_bytes(disk, log_path(DIRECTORY, 1), bytes(10_000))

    assert contents(disk) == [b"r1", b"r2", b"r3"]


def test_a_bad_record_that_a_later_one_knew_to_be_durable_is_corruption() -> None:
    """Fault gate 8: every single bit of an acknowledged record matters."""
    disk = ForgetfulDisk()
    with_records(disk, 4)
    path = log_path(DIRECTORY, 1)
    record_bytes = RECORD_HEADER.size + 2
    first_bit = FILE_HEADER.size * 8

    for bit in range(first_bit, first_bit + 3 * record_bytes * 8, 7):
        damaged = disk.copy()
        damaged.flip_bit(path, bit)
        with pytest.raises(JournalCorrupt, match="damaged"):
            contents(damaged)


def test_sectors_missing_inside_one_unsynced_batch_are_torn_not_corrupt() -> None:
    """A power cut may keep the end of a batch and lose its middle; none of it was acknowledged."""
    disk = ForgetfulDisk()
    journal = opened(disk)
    journal.append(b"kept")
    journal.commit()
    for _ in range(20):
        journal.append(b"x" * 600)
    journal.commit()
    path = log_path(DIRECTORY, 1)
    for bit in range((FILE_HEADER.size + 700) * 8, (FILE_HEADER.size + 1200) * 8):
        disk.flip_bit(path, bit)

    assert contents(disk)[0] == b"kept"


def test_a_flipped_bit_in_a_file_header_is_refused_or_named() -> None:
    disk = ForgetfulDisk()
    with_records(disk, 2)
    for bit in range(0, FILE_HEADER.size * 8, 11):
        damaged = disk.copy()
        damaged.flip_bit(log_path(DIRECTORY, 1), bit)
        with pytest.raises(JournalCorrupt):
            contents(damaged)


def test_another_clusters_directory_is_refused_before_it_is_touched() -> None:
    """Fault gate 26 (hadoop#6387) and 27."""
    disk = ForgetfulDisk()
    with_records(disk, 2)
    add_bytes(disk, log_path(DIRECTORY, 1), b"torn")
    before = disk.contents(log_path(DIRECTORY, 1))

    with pytest.raises(WrongCluster, match="belongs to cluster c1"):
        Journal(DIRECTORY, "c2", disk=disk).recover()

    assert disk.contents(log_path(DIRECTORY, 1)) == before


def test_a_newer_format_is_refused_before_it_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = ForgetfulDisk()
    monkeypatch.setattr("mrstream.cluster.journal.format.FORMAT_VERSION", 9)
    with_records(disk, 2)
    monkeypatch.undo()

    with pytest.raises(NewerFormat, match="format 9"):
        contents(disk)


def test_a_failed_sync_ends_the_journal_and_acknowledges_nothing_more() -> None:
    """Fault gate 6: after EIO nobody knows what is on the disk."""
    disk = ForgetfulDisk()
    told: list[DiskFailed] = []
    journal = Journal(DIRECTORY, "c1", disk=disk, on_failure=told.append)
    journal.recover()
    journal.append(b"good")
    journal.commit()
    disk.fail_sync = True
    journal.append(b"bad")

    with pytest.raises(DiskFailed, match="cannot make the journal durable"):
        journal.commit()

    disk.fail_sync = False
    assert journal.durable == 1 and len(told) == 1
    with pytest.raises(DiskFailed):
        journal.append(b"later")


def test_a_full_disk_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault gate 7: nothing is acknowledged while there is no space; then all of it is."""
    monkeypatch.setattr("mrstream.cluster.journal.journal.NO_SPACE_RETRY_S", 0.01)
    disk = ForgetfulDisk()
    journal = opened(disk)
    journal.start()
    disk.room_bytes = 5

    sequence = journal.append(b"x" * 100)
    assert not journal.wait_durable(sequence, 0.1)
    assert "no space" in journal.blocked
    disk.room_bytes = 1 << 30

    assert journal.wait_durable(sequence, 5)
    assert journal.blocked == ""
    journal.close()
    assert contents(disk) == [b"x" * 100]


def test_a_full_disk_is_known_while_there_is_room_for_what_is_underway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else whoever only reads would wait with the record that waits for the disk (M1)."""
    monkeypatch.setattr("mrstream.cluster.journal.journal.NO_SPACE_RETRY_S", 0.01)
    monkeypatch.setattr("mrstream.cluster.journal.journal.RESERVE_BYTES", 4000)
    disk = ForgetfulDisk()
    journal = opened(disk)
    disk.room_bytes = 3000
    journal.start()

    sequence = journal.append(b"x" * 100)
    assert journal.wait_durable(sequence, 30), "there is room for that"
    wait_for(lambda: "no space" in journal.blocked, 30.0, "the full disk to be noticed")
    disk.room_bytes = 1_000_000
    wait_for(lambda: not journal.blocked, 30.0, "room to be noticed, though nobody writes")
    journal.close()
    assert contents(disk) == [b"x" * 100]


def test_room_is_kept_on_a_real_disk_without_making_the_file_longer(tmp_path: Path) -> None:
    with opened_file(OsDisk(str(tmp_path)), "log", create=True) as file:
        file.write(b"x" * 10, 0)
        file.reserve(1 << 20)
        status = os.stat(tmp_path / "log")
        assert file.size() == 10
        assert status.st_blocks * 512 >= 1 << 20


def lines(state: list[bytes]) -> list[bytes]:
    return [line + b"\n" for line in state]


def test_two_checkpoints_are_kept_and_a_damaged_one_costs_only_a_longer_replay() -> None:
    """GFS §2.6.3; fault gate 8."""
    disk = ForgetfulDisk()
    journal = opened(disk)
    state: list[bytes] = []
    for round_number in range(4):
        for n in range(3):
            state.append(b"r%d-%d" % (round_number, n))
            journal.append(state[-1])
        sequence = journal.rotate()
        journal.commit()
        journal.write_checkpoint(sequence, lines(state))
    state.append(b"last")
    journal.append(b"last")
    journal.close()

    assert list_checkpoints(disk, DIRECTORY) == [12, 9]
    assert list_logs(disk, DIRECTORY) == [10, 13]
    assert contents(disk) == state
    newest = checkpoint_path(DIRECTORY, 12)
    for bit in range(0, len(disk.contents(newest)) * 8, 13):
        damaged = disk.copy()
        damaged.flip_bit(newest, bit)
        journal = Journal(DIRECTORY, "c1", disk=damaged)
        found = journal.recover()
        assert found.checkpoint_sequence == 9 and len(found.problems) == 1
        assert contents(damaged) == state


def test_a_missing_log_is_named_not_skipped() -> None:
    disk = ForgetfulDisk()
    journal = opened(disk)
    for n in range(3):
        journal.append(b"r%d" % n)
        journal.commit()
        journal.rotate()
        journal.commit()
    journal.close()
    assert list_logs(disk, DIRECTORY) == [1, 2, 3, 4]
    disk.remove(log_path(DIRECTORY, 2))

    with pytest.raises(JournalCorrupt, match="record 2 is missing"):
        contents(disk)


def test_a_checkpoint_before_its_first_log_file_is_whole(tmp_path: Path) -> None:
    """A power cut between the checkpoint, which a child writes, and the file that begins after it:
    nothing was logged since, and nothing is missing."""
    journal = Journal(str(tmp_path), "c1")
    journal.recover()
    for number in range(3):
        journal.append(b"%d" % number)
    journal.commit()
    sequence = journal.rotate()
    journal.commit()
    journal.write_checkpoint(sequence, [b"state"])
    journal.close()
    os.truncate(log_path(str(tmp_path), sequence + 1), 0)

    again = Journal(str(tmp_path), "c1")
    found = again.recover()

    assert (found.last_sequence, b"".join(found.checkpoint), list(found.records)) == (
        3, b"state", []
    )  # fmt: skip
    again.append(b"next")
    again.commit()
    again.close()
    assert [payload for _, payload in Journal(str(tmp_path), "c1").look().records] == [b"next"]


def test_a_forked_checkpoint_holds_the_state_at_the_fork_while_the_service_goes_on(
    tmp_path: Path,
) -> None:
    """GFS §2.6.3 (GFS-19): a checkpoint is built without delaying mutations; here it is not done
    before a later record is on disk."""
    journal = opened(None, str(tmp_path))
    journal.start()
    state = [b"a", b"b"]
    for record in state:
        journal.append(record)
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def slowly() -> Iterator[bytes]:
        yield b"a\n"
        gate.read_bytes()  # until somebody has it open to write
        yield from lines(state)[1:]

    thread = journal.fork_checkpoint(slowly)
    state.append(b"c")
    assert journal.wait_durable(journal.append(b"c"), 60.0)
    assert thread.is_alive() and list_checkpoints(OsDisk(), str(tmp_path)) == []
    gate.write_bytes(b"go on")
    thread.join(60)
    journal.close()

    assert list_checkpoints(OsDisk(), str(tmp_path)) == [2]
    assert contents(OsDisk(), str(tmp_path)) == [b"a", b"b", b"c"]


def test_a_checkpoint_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """On a full disk its half would take the room that the log needs."""
    journal = Journal(str(tmp_path), "c1")
    journal.recover()
    journal.start()
    journal.append(b"a")

    def produce() -> Iterator[bytes]:
        yield b"x" * 3_000_000
        raise OSError(errno.ENOSPC, "no space left on device")

    journal.fork_checkpoint(produce).join(60)
    journal.close()

    assert [name for name in os.listdir(tmp_path) if "checkpoint" in name] == []
    assert contents(OsDisk(), str(tmp_path)) == [b"a"]


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    """A master looks at its log, and asks who has copies of it, before it touches anything."""
    absent = Journal(str(tmp_path / "none"), "c1").look()
    assert (absent.last_sequence, absent.tail_path) == (0, None)
    assert not (tmp_path / "none").exists()
    journal = opened(None, str(tmp_path / "j"))
    journal.append(b"a")
    journal.commit()
    journal.close()
    path = Path(log_path(str(tmp_path / "j"), 1))
    torn = path.read_bytes() + b"torn"
    path.write_bytes(torn)

    again = Journal(str(tmp_path / "j"), "c1")
    found = again.look()

    assert found.last_sequence == 1 and "4 bytes" in found.torn
    assert path.read_bytes() == torn
    assert again.recover(found) is found
    assert path.read_bytes() == torn[:-4]
    again.close()


ACKNOWLEDGED_BEFORE_KILL = 50


def test_kill_9_loses_nothing_that_was_durable(tmp_path: Path) -> None:
    """Fault gate 3 in small: a real process, killed while it commits."""
    program = (
        "import sys; from mrstream.cluster.journal.journal import Journal\n"
        "j = Journal(sys.argv[1], 'c1'); j.recover(); j.start()\n"
        "while True:\n"
        "    s = j.append(b'r%d' % (j.sequence + 1)); j.wait_durable(s)\n"
        "    print(s, flush=True)\n"
    )
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        assert child.stdout is not None
        seen = 0
        for line in child.stdout:  # it goes on committing while we count, and is killed at it
            acknowledged = int(line)
            seen += 1
            if seen == ACKNOWLEDGED_BEFORE_KILL:
                child.kill()
        child.wait()
        state = contents(OsDisk(), str(tmp_path))

        assert seen >= ACKNOWLEDGED_BEFORE_KILL
        assert len(state) >= acknowledged
        assert state == [b"r%d" % n for n in range(1, len(state) + 1)]


def test_files_of_the_journal_are_for_their_owner_only(tmp_path: Path) -> None:
    journal = opened(None, str(tmp_path / "deep" / "er"))
    journal.close()

    assert os.stat(log_path(str(tmp_path / "deep" / "er"), 1)).st_mode & 0o77 == 0


def test_an_unfinished_file_that_was_removed_does_not_come_back_behind_a_torn_tail() -> None:
    """The removal was not synced: after a second power cut the file followed one that had been
    written on, whose torn tail then counted as damage, and the master did not start."""
    whole = ForgetfulDisk()
    with_records(whole, 3)
    unfinished = whole.open(log_path(DIRECTORY, 4), create=True)
    unfinished.write(b"MRS", 0)
    unfinished.sync()
    whole.sync_directory(DIRECTORY)

    for seed in range(20):
        disk = whole.copy()
        opened(disk).close()
        disk.crash(random.Random(seed))

        assert not disk.exists(log_path(DIRECTORY, 4))


def test_a_gap_in_the_log_is_never_written() -> None:
    """A reader would take what comes behind it for damage: better a master that stops."""
    disk = ForgetfulDisk()
    with_records(disk, 2)
    journal = opened(disk)
    before = disk.contents(log_path(DIRECTORY, 1))
    journal._pending.append((4, b"one too far"))

    with pytest.raises(AssertionError, match="a gap in the log"):
        journal.commit()

    assert disk.contents(log_path(DIRECTORY, 1)) == before
