"""What a member keeps on its disk: ballot, promise, log of format 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrstream.cluster.consensus.members import MemberId, Members
from mrstream.cluster.consensus.records import EpochBegan, MembersSet, encode_own
from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import JournalCorrupt, NewerFormat
from mrstream.cluster.journal.ballot_file import SLOT_BYTES, BallotFile, PromiseFile
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.recovery import log_path
from tests.support.forgetful_disk import ForgetfulDisk

JOURNAL = b"0123456789abcdef"
ME = MemberId("h/0123456789abcdef")
BEGAN = encode_own(EpochBegan(1, ME))
MEMBERS = encode_own(MembersSet((ME,)))


def empty(seed: int = 0) -> ForgetfulDisk:
    disk = ForgetfulDisk(seed)
    disk.make_directories("/log")
    return disk


def opened(disk: ForgetfulDisk) -> GroupLog:
    log = GroupLog("/log", "cell", disk)
    log.open(JOURNAL)
    return log


def test_a_ballot_comes_back_after_a_power_cut_at_any_byte() -> None:
    for seed in range(200):
        disk = empty(seed)
        ballot = BallotFile(disk, "/log")
        for epoch in range(1, 4):
            ballot.save(epoch, JOURNAL)
        disk.fail_sync = True
        with pytest.raises(OSError):
            ballot.save(9, b"f" * 16)
        disk.fail_sync = False
        disk.crash()

        found = BallotFile(disk, "/log")

        assert (found.epoch, found.voted_for) in ((3, JOURNAL), (9, b"f" * 16))


def test_a_ballot_with_two_damaged_slots_is_not_taken_for_an_empty_one() -> None:
    disk = empty()
    ballot = BallotFile(disk, "/log")
    ballot.save(1, JOURNAL)
    ballot.save(2, JOURNAL)
    disk.flip_bit("/log/ballot", 40)
    disk.flip_bit("/log/ballot", SLOT_BYTES * 8 + 40)

    with pytest.raises(JournalCorrupt, match="both slots"):
        BallotFile(disk, "/log")


def test_a_promise_is_exact_after_a_crash_and_whole_after_a_boot() -> None:
    disk = empty()
    boot, later = b"a" * 16, b"b" * 16
    assert PromiseFile(disk, "/log", boot).until_s(10.0, 3.0) == 10.0
    PromiseFile(disk, "/log", boot).save(12.5)

    assert PromiseFile(disk, "/log", boot).until_s(11.0, 3.0) == 12.5
    assert PromiseFile(disk, "/log", boot).until_s(13.0, 3.0) == 13.0
    assert PromiseFile(disk, "/log", boot).until_s(1.0, 3.0) == 4.0, "never more than a lease"
    assert PromiseFile(disk, "/log", later).until_s(0.5, 3.0) == 3.5
    disk.flip_bit("/log/promise", 70)
    assert PromiseFile(disk, "/log", boot).until_s(11.0, 3.0) == 14.0


def test_a_promise_that_a_power_cut_took_counts_as_a_whole_one() -> None:
    for seed in range(50):
        disk = empty(seed)
        PromiseFile(disk, "/log", b"a" * 16).save(12.5)
        disk.crash()

        assert PromiseFile(disk, "/log", b"b" * 16).until_s(0.5, 3.0) == 3.5


def test_a_log_knows_its_epochs_and_members_again() -> None:
    disk = empty()
    log = opened(disk)
    log.write(1, [BEGAN, MEMBERS, b"x"])
    log.write(4, [encode_own(EpochBegan(3, ME)), b"y"])
    log.sync()

    again = opened(disk)

    assert again.journal == JOURNAL and again.last == 5
    assert again.look_at_shape().rows == [(1, 1), (4, 3)]
    assert again.look_at_members().now == Members((ME,))
    assert again.read(1, 9) == (BEGAN, MEMBERS, b"x", encode_own(EpochBegan(3, ME)), b"y")


def test_an_unfinished_file_that_was_removed_does_not_come_back_behind_a_torn_tail() -> None:
    """Without a sync of the removal the file was there again after a second power cut, behind one
    that had been written on: a torn tail there counted as damage, and the member did not start."""
    for seed in range(60):
        disk = empty(seed)
        log = opened(disk)
        log.write(1, [BEGAN, b"r2"])
        log.sync()
        log.close()
        unfinished = disk.open(log_path("/log", 3), create=True)
        unfinished.write(b"MRS", 0)
        unfinished.sync()
        disk.sync_directory("/log")

        log = opened(disk)
        log.write(3, [b"r%d" % at * 400 for at in range(3, 9)])
        disk.crash()

        assert opened(disk).read(1, 2) == (BEGAN, b"r2")


def test_a_cut_is_durable_and_reaches_over_files() -> None:
    for seed in range(60):
        disk = empty(seed)
        log = opened(disk)
        for at in range(1, 10):
            log.write(at, [BEGAN if at == 1 else b"r%d" % at])
            if at % 3 == 0:
                log.rotate()
        log.sync()
        log.cut(4)
        disk.crash()

        again = opened(disk)

        assert again.last == 4 and again.read(1, 9) == (BEGAN, b"r2", b"r3", b"r4")
        again.write(5, [b"new"])
        again.sync()
        assert opened(disk).read(4, 5) == (b"r4", b"new")


def test_a_full_disk_goes_on_with_the_file_that_it_has() -> None:
    """No new file can be begun; the log and its checkpoint lose nothing by that."""
    for room_bytes in (0, 10):
        disk = empty()
        log = opened(disk)
        log.write(1, [BEGAN, b"r2"])
        before = disk.list("/log")
        disk.room_bytes = room_bytes
        log.rotate()
        assert disk.list("/log") == before
        disk.room_bytes = 1 << 30
        log.write(3, [b"r3"])
        log.sync()
        log.rotate()
        log.write(4, [b"r4"])
        log.sync()

        assert opened(disk).read(1, 9) == (BEGAN, b"r2", b"r3", b"r4")


def test_a_power_cut_at_any_moment_leaves_what_was_synced() -> None:
    for seed in range(150):
        disk = empty(seed)
        log = opened(disk)
        log.write(1, [BEGAN, MEMBERS])
        synced = 0
        for at in range(3, 30):
            log.write(at, [b"r%d" % at])
            choice = disk.random.randrange(6)
            if choice == 0:
                synced = log.sync()
            elif choice == 1:
                log.rotate()
                synced = log.synced
            elif choice == 2 and at > 6:
                log.write_checkpoint_part(log.synced or 1, [b"state"])
                log.publish_checkpoint(log.synced or 1)
            if log.last != at:
                break
        disk.crash()

        again = opened(disk)

        assert again.last >= synced
        assert again.look_at_shape().last_epoch == 1


def test_a_checkpoint_of_another_member_replaces_a_log_that_does_not_hold_it() -> None:
    """C7: what the checkpoint holds is committed; what differs from it is not."""
    disk = empty()
    log = opened(disk)
    log.write(1, [BEGAN, MEMBERS, b"mine", b"mine, too"])
    log.sync()
    writer = log.begin_checkpoint(3, 2, ((2, Members((ME,))),))
    writer.add(b"their state")
    writer.finish()
    log.publish_checkpoint(3)

    again = opened(disk)

    assert (again.base, again.last) == (3, 3) and again.look_at_shape().last_epoch == 2
    held = again.read_checkpoint()
    assert held is not None and b"".join(held[3]) == b"their state"
    assert again.look_at_members().now == Members((ME,))
    again.write(4, [b"next"])
    again.sync()
    assert opened(disk).read(4, 4) == (b"next",)


def test_a_checkpoint_that_the_log_holds_leaves_the_log_alone() -> None:
    disk = empty()
    log = opened(disk)
    log.write(1, [BEGAN, MEMBERS, b"x", b"y"])
    log.sync()
    log.write_checkpoint_part(3, [b"state"])
    log.publish_checkpoint(3)

    assert opened(disk).last == 4


def test_a_journal_of_one_process_is_read_as_epoch_0_and_refuses_what_becomes_of_it() -> None:
    disk = empty()
    journal = Journal("/log", "cell", disk=disk)
    journal.recover()
    for payload in (b"one", b"two"):
        journal.append(payload)
    journal.close()
    before = disk.contents("/log/log-00000000000000000001")

    log = opened(disk)
    assert log.last == 2 and log.look_at_shape().last_epoch == 0
    log.write(3, [BEGAN])
    log.sync()

    assert disk.contents("/log/log-00000000000000000001") == before
    assert opened(disk).look_at_shape().rows == [(3, 1)]
    names = disk.list("/log")
    with pytest.raises(NewerFormat, match="format 2"):
        Journal("/log", "cell", disk=disk).recover()
    assert disk.list("/log") == names


def test_a_damaged_record_that_was_synced_is_corruption() -> None:
    disk = empty()
    log = opened(disk)
    log.write(1, [BEGAN, MEMBERS])
    log.sync()
    log.write(3, [b"later"])
    log.sync()
    disk.flip_bit("/log/log-00000000000000000001", (120 + 30) * 8)

    with pytest.raises(JournalCorrupt):
        opened(disk)


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = empty()
    log = opened(disk)
    log.write(1, [BEGAN])
    disk.room_bytes = 10
    with pytest.raises(OSError):
        log.write(2, [b"too much"])
    disk.room_bytes = 1 << 30
    log.write(2, [b"now"])
    log.sync()

    assert opened(disk).read(1, 2) == (BEGAN, b"now")


def test_the_real_disk_writes_slots_where_they_belong(tmp_path: Path) -> None:
    directory = str(tmp_path)
    ballot = BallotFile(OsDisk(), directory)
    ballot.save(1, JOURNAL)
    ballot.save(2, JOURNAL)
    ballot.close()

    assert os.stat(tmp_path / "ballot").st_size == 2 * SLOT_BYTES
    assert BallotFile(OsDisk(), directory).epoch == 2
