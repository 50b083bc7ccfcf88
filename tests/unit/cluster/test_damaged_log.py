"""A member whose log is damaged: it never votes with a hole, nor with less than it said it had."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.cluster.config.config import LOCK_MASTER, Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.consensus.members import MemberId, member_id
from mrstream.cluster.consensus.records import EpochBegan, MembersSet, encode_own
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import JournalCorrupt
from mrstream.cluster.journal.ballot_file import SLOT_BYTES, BallotFile
from mrstream.cluster.journal.format import RECORD_HEADER
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.journal.group_recovery import HEADER_BYTES
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.leader.office import Office
from tests.support.forgetful_disk import ForgetfulDisk

JOURNAL = b"0123456789abcdef"
ME = MemberId("h1/" + JOURNAL.decode())
OTHERS = (member_id("h2", "b" * 16), member_id("h3", "c" * 16))
BEGAN = encode_own(EpochBegan(1, ME))
MEMBERS = encode_own(MembersSet((ME, *OTHERS)))
SECRET = b"k" * 32


def written(log: GroupLog) -> GroupLog:
    """A log of two files, each batch synced before the next begins."""
    log.open(JOURNAL)
    for first, records in ((1, [BEGAN, MEMBERS]), (3, [b"three", b"four"]), (5, [b"five"])):
        log.write(first, records)
        log.sync()
    log.rotate()
    for first, records in ((6, [b"six"]), (7, [b"seven"]), (8, [b"eight"])):
        log.write(first, records)
        log.sync()
    return log


def contents(log: GroupLog) -> tuple[bytes, ...]:
    return tuple(log.read(1, log.last))


class TestEveryByte:
    """Which bit it is says nobody beforehand: all of them."""

    LAST_BATCH_BYTES = RECORD_HEADER.size + len(b"eight")

    def test_a_bit_that_turned_over_is_noticed_or_does_no_harm(self) -> None:
        whole = ForgetfulDisk()
        before = contents(written(GroupLog("/log", "cell", whole)))
        assert len(before) == 8
        noticed = 0
        for name in whole.list("/log"):
            path = f"/log/{name}"
            for at in range(len(whole.contents(path))):
                disk = whole.copy()
                disk.flip_bit(path, 8 * at + at % 8)
                log = GroupLog("/log", "cell", disk)
                try:
                    log.open(JOURNAL)
                except JournalCorrupt:
                    noticed += 1
                    continue
                is_last_batch = at >= len(whole.contents(path)) - self.LAST_BATCH_BYTES
                if name == whole.list("/log")[-1] and is_last_batch:
                    # Nothing that was written later knows of it: as torn as by a power cut.
                    assert contents(log) in (before, before[:-1])
                else:
                    assert contents(log) == before, f"{name}, byte {at}"
        assert noticed > 400

    def test_a_file_that_is_gone_is_noticed(self) -> None:
        for at in range(2):
            disk = ForgetfulDisk()
            written(GroupLog("/log", "cell", disk)).rotate()
            logs = disk.list("/log")
            assert len(logs) == 3
            disk.remove(f"/log/{logs[at]}")

            with pytest.raises(JournalCorrupt, match="records are missing"):
                GroupLog("/log", "cell", disk).open(JOURNAL)

    def test_a_file_that_is_cut_short_is_noticed_where_another_follows(self) -> None:
        whole = ForgetfulDisk()
        written(GroupLog("/log", "cell", whole))
        first = f"/log/{whole.list('/log')[0]}"
        for length in range(HEADER_BYTES, len(whole.contents(first))):
            disk = whole.copy()
            disk.open(first, write=True).truncate(length)

            with pytest.raises(JournalCorrupt):
                GroupLog("/log", "cell", disk).open(JOURNAL)


class Restarted(Exception):
    """What a member does in place of going on."""


class Machine:
    """Counts records."""

    def load(self, pieces: Iterator[bytes]) -> None:
        raise AssertionError("there is no checkpoint")

    def apply(self, payload: bytes) -> None:
        raise AssertionError("nobody said that it is committed")

    def lead(self, epoch: int) -> None:
        raise AssertionError("it has no majority")


def restart(reason: str) -> None:
    raise Restarted(reason)


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    made: list[Daemon] = []
    yield made
    for daemon in made:
        daemon.loop.close()


def office_of(daemons: list[Daemon], directory: Path, masters: str = "[h1, h2, h3]") -> Office:
    config = read_config(
        f"name: t\nports: {{base: 18310}}\nmasters: {masters}\nlock: {{}}\nhosts: {{h1: {{address: "
        "127.0.0.1}, h2: {address: 127.0.0.2}, h3: {address: 127.0.0.3}}\n"
    )
    cluster = Cluster(config, Secret("c1", SECRET))
    daemons.append(Daemon(LOCK_MASTER, cluster, config.host("h1"), str(directory)))
    os.makedirs(daemons[-1].state_directory, exist_ok=True)
    return Office(daemons[-1], Machine(), restart=restart)


def run(office: Office) -> None:
    loop = office._daemon.loop
    asyncio.set_event_loop(loop)
    loop.run_until_complete(office.start())


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


class TestSetAside:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        """That of a member that has voted."""
        path = tmp_path / LOCK_MASTER / "log"
        path.mkdir(parents=True)
        written(GroupLog(str(path), "c1")).close()
        ballot = BallotFile(OsDisk(), str(path))
        for epoch in (1, 2):
            ballot.save(epoch, JOURNAL)
        ballot.close()
        return path

    @pytest.mark.parametrize(
        ("name", "places"),
        [
            ("log-00000000000000000001", [HEADER_BYTES + RECORD_HEADER.size]),
            ("log-00000000000000000006", [HEADER_BYTES + RECORD_HEADER.size]),
            ("log-00000000000000000001", [3]),
            ("ballot", [10, SLOT_BYTES + 10]),
        ],
        ids=["a record", "a record of the last file", "a header", "both votes"],
    )
    def test_a_damaged_member_comes_back_as_a_new_one_and_keeps_what_was_there(
        self, daemons: list[Daemon], tmp_path: Path, log: Path, name: str, places: list[int]
    ) -> None:
        for at in places:
            damage(log / name, at)
        there = {path.name: path.read_bytes() for path in log.iterdir()}

        with pytest.raises(Restarted, match="comes back as a new member"):
            run(office_of(daemons, tmp_path))

        (kept,) = log.parent.glob("log.damaged-*")
        assert there.items() <= {path.name: path.read_bytes() for path in kept.iterdir()}.items()
        again = office_of(daemons, tmp_path)
        run(again)
        try:
            standing = again.standing()
            assert standing.member not in (ME, "") and not standing.voters and standing.last == 0
            assert again.ready() == (
                False,
                "belongs to no group yet: `mrstream cluster up` founds or extends it",
            )
        finally:
            again._daemon.loop.run_until_complete(again.stop())

    def test_a_log_without_one_readable_header_is_known_for_a_members_by_its_ballot(
        self, daemons: list[Daemon], tmp_path: Path, log: Path
    ) -> None:
        for path in log.glob("log-*"):
            damage(path, 3)

        with pytest.raises(Restarted):
            run(office_of(daemons, tmp_path))

    def test_where_nobody_else_votes_it_is_left_alone(
        self, daemons: list[Daemon], tmp_path: Path, log: Path
    ) -> None:
        """It may be the only one: a person decides (`cluster restore`)."""
        damage(log / "log-00000000000000000001", HEADER_BYTES + RECORD_HEADER.size)
        there = {path.name: path.read_bytes() for path in log.iterdir()}

        with pytest.raises(JournalCorrupt):
            run(office_of(daemons, tmp_path, masters="[h1]"))

        assert {path.name: path.read_bytes() for path in log.iterdir()} == there
        assert list(log.parent.glob("log.damaged-*")) == []

    def test_a_log_that_never_was_a_groups_is_left_alone(
        self, daemons: list[Daemon], tmp_path: Path
    ) -> None:
        """A cluster of before, on its way to three masters: nobody else has the log yet."""
        path = tmp_path / LOCK_MASTER / "log"
        path.mkdir(parents=True)
        loop = asyncio.new_event_loop()
        old = Journal(str(path), "c1")
        old.recover()
        old.start(loop)
        for _ in range(2):
            loop.run_until_complete(old.when_durable(old.append(b"record")))
        old.close()
        loop.close()
        (file,) = path.glob("log-*")
        size = file.stat().st_size
        damage(file, size - 2 * (RECORD_HEADER.size + len(b"record")) + RECORD_HEADER.size)

        with pytest.raises(JournalCorrupt):
            run(office_of(daemons, tmp_path))

        assert file.stat().st_size == size and list(path.parent.glob("log.damaged-*")) == []
