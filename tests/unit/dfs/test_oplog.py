"""The operation log and the order of duties: nothing is said that is not on disk (M1)."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from mrstream.cluster.errors import DiskFailed, JournalCorrupt, NewerFormat
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.dfs import protocol as p
from mrstream.dfs.duties import Duties
from mrstream.dfs.errors import NoSuchFile
from mrstream.dfs.metadata.events import Called, Command, LeadershipBegan, Refuse, Reply
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import decode_record, replay
from tests.support.forgetful_disk import ForgetfulDisk


class Shell:
    """A master without a network: brain, log and duties over a disk that forgets."""

    def __init__(self, disk: ForgetfulDisk) -> None:
        self.journal = Journal("/j", "cluster", disk=disk)
        self.brain = Metadata(Settings(), random.Random(1))
        self.replayed = replay(self.journal.recover(), self.brain)
        self.oplog = RecordLog(self.journal, 1000)
        self.said: list[Command] = []
        self.gate: Gate[Command] = Gate(self.oplog, self.said.append)
        self.duties = Duties(self.brain, self.oplog, self.gate, self.said.append)
        self.duties.event(LeadershipBegan(1), 1.0, 2.0)

    def call(self, call: int, request: Any) -> None:
        self.duties.event(Called(call, request), 1.0, 2.0)

    def commit(self) -> None:
        self.journal.commit()
        self.gate.release()


def test_a_record_of_a_later_version_is_named_as_such_and_rubbish_as_rubbish() -> None:
    with pytest.raises(NewerFormat, match="newer version"):
        decode_record(msgspec.msgpack.encode(["TimeTravelled", 1]))
    with pytest.raises(JournalCorrupt, match="cannot be read"):
        decode_record(b"\xc1")


def test_an_answer_waits_until_its_record_is_durable() -> None:
    shell = Shell(ForgetfulDisk())

    shell.call(1, p.MakeDirectory("/d", "me"))

    assert shell.gate.waits_for == 1 and shell.said == []
    shell.commit()
    assert shell.said == [Reply(1, None)]


def test_a_question_waits_for_the_changes_that_its_answer_rests_on() -> None:
    """M1 for reads: who saw a file may tell others, so it must survive."""
    shell = Shell(ForgetfulDisk())
    shell.call(1, p.MakeDirectory("/d", "me"))

    shell.duties.ask(2, p.Stat("/d"), 1.0)
    shell.duties.ask(3, p.Stat("/nothing"), 1.0)

    assert shell.said == []
    shell.commit()
    kinds = [(type(said), said.call) for said in shell.said]  # type: ignore[union-attr]
    assert kinds == [(Reply, 1), (Reply, 2), (Refuse, 3)]
    assert shell.gate.is_clear and shell.gate.waits_for == 0


def test_answers_are_given_in_the_order_of_the_decisions() -> None:
    shell = Shell(ForgetfulDisk())

    for number in range(5):
        shell.call(number, p.MakeDirectory(f"/d{number}", "me"))
        shell.call(100 + number, p.MakeDirectory(f"/d{number}", "me"))  # refused: it exists
    shell.commit()

    calls = [said.call for said in shell.said]  # type: ignore[union-attr]
    assert calls == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104]


def test_many_changes_share_one_flush() -> None:
    """GFS-17: records are batched per flush."""
    disk = ForgetfulDisk()
    shell = Shell(disk)
    before = disk.syncs

    for number in range(50):
        shell.call(number, p.MakeDirectory(f"/d{number}", "me"))
    shell.commit()

    assert len(shell.said) == 50
    assert disk.syncs - before == 1


def test_a_failed_flush_is_never_followed_by_an_answer() -> None:
    """Fault gate 6: after a failed fsync nobody knows what the disk holds."""
    disk = ForgetfulDisk()
    shell = Shell(disk)
    shell.call(1, p.MakeDirectory("/d", "me"))
    disk.fail_sync = True

    with pytest.raises(DiskFailed):
        shell.commit()
    disk.fail_sync = False
    with pytest.raises(DiskFailed):
        shell.call(2, p.MakeDirectory("/e", "me"))

    assert shell.said == []


def test_what_was_not_committed_is_forgotten_by_a_crash_and_was_never_said() -> None:
    disk = ForgetfulDisk()
    shell = Shell(disk)
    shell.call(1, p.MakeDirectory("/kept", "me"))
    shell.commit()
    shell.call(2, p.MakeDirectory("/lost", "me"))

    disk.crash()
    again = Shell(disk)

    assert [said.call for said in shell.said] == [1]  # type: ignore[union-attr]
    assert again.brain.query(p.Stat("/kept"), 1.0).is_directory
    with pytest.raises(NoSuchFile):
        again.brain.query(p.Stat("/lost"), 1.0)


def test_recovery_replays_only_what_came_after_the_checkpoint() -> None:
    """GFS-18."""
    disk = ForgetfulDisk()
    shell = Shell(disk)
    for number in range(20):
        shell.call(number, p.MakeDirectory(f"/d{number}", "me"))
    shell.commit()
    sequence = shell.journal.rotate()
    shell.journal.commit()
    shell.journal.write_checkpoint(sequence, pack_image(shell.brain))
    shell.call(99, p.MakeDirectory("/after", "me"))
    shell.commit()

    disk.crash()
    again = Shell(disk)

    assert again.replayed == 1
    assert b"".join(pack_image(again.brain)) == b"".join(pack_image(shell.brain))


def test_the_log_asks_for_a_checkpoint_when_it_has_grown() -> None:
    shell = Shell(ForgetfulDisk())

    assert not shell.oplog.wants_checkpoint
    for number in range(30):
        shell.call(number, p.MakeDirectory(f"/directory-{number}", "me"))

    assert shell.oplog.wants_checkpoint


def test_half_an_image_is_refused() -> None:
    """GFS-20."""
    shell = Shell(ForgetfulDisk())
    shell.call(1, p.MakeDirectory("/d", "me"))
    image = b"".join(pack_image(shell.brain))

    for cut in (0, 5, 100, len(image) - 16):
        with pytest.raises(JournalCorrupt):
            load_image(Metadata(Settings(), random.Random(1)), [image[:cut]])


def test_an_image_of_a_later_version_is_refused() -> None:
    shell = Shell(ForgetfulDisk())
    image = bytearray(b"".join(pack_image(shell.brain)))
    image[16] = 3

    with pytest.raises(NewerFormat, match="format 3"):
        load_image(Metadata(Settings(), random.Random(1)), [bytes(image)])
