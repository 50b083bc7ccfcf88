"""Which master a chunkserver obeys (F2): the latest it ever met, also after a power cut, and fresh
orders only."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.cluster.errors import Corrupt, Unavailable
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, epoch_of_command, first_command_id
from mrstream.dfs.chunks.allegiance import EPOCHS, Allegiance, allegiance_of, read_epoch
from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.command_queue import CommandQueue, Outcome
from mrstream.dfs.errors import StaleMaster
from mrstream.dfs.protocol import COMMANDS, Command, DeleteChunk
from tests.support.forgetful_disk import ForgetfulDisk

CONTACT_S = 8.0


def store_on(*disks: ForgetfulDisk) -> ChunkStore:
    return ChunkStore(list(disks), cluster="c", server="s1")


def delete(epoch: int, since: int) -> DeleteChunk:
    return DeleteChunk(
        first_command_id(epoch), ChunkHandle(1), ChunkVersion(1), "surplus", since=since
    )


class TestEpochs:
    def test_what_was_met_is_on_every_disk_before_it_is_obeyed(self) -> None:
        disks = [ForgetfulDisk(name="a"), ForgetfulDisk(name="b")]
        allegiance = allegiance_of(store_on(*disks))

        allegiance.meet(7)
        for disk in disks:
            disk.crash(random.Random(1))

        assert [read_epoch(disk) for disk in disks] == [7, 7]
        assert disks[0].contents(EPOCHS).split() == [b'{"dfs":', b"7}"]

    def test_a_lower_epoch_is_refused_after_a_power_cut_too(self) -> None:
        disk = ForgetfulDisk(name="a")
        allegiance_of(store_on(disk)).meet(7)
        disk.crash(random.Random(2))

        allegiance = allegiance_of(store_on(disk))

        with pytest.raises(StaleMaster, match="epoch 6; a master of 7"):
            allegiance.meet(6)
        allegiance.meet(7)
        allegiance.meet(8)
        assert allegiance.epoch == 8

    def test_the_highest_of_all_disks_counts(self) -> None:
        """One came from the shelf."""
        old, new = ForgetfulDisk(name="a"), ForgetfulDisk(name="b")
        allegiance_of(store_on(old)).meet(3)
        allegiance_of(store_on(new)).meet(9)

        assert allegiance_of(store_on(old, new)).epoch == 9

    def test_what_no_disk_takes_is_not_obeyed(self) -> None:
        disk = ForgetfulDisk(name="a", capacity_bytes=1 << 20)
        allegiance = allegiance_of(store_on(disk))
        disk.capacity_bytes = 0

        with pytest.raises(Unavailable, match="no disk takes the master's epoch 5"):
            allegiance.meet(5)
        assert allegiance.epoch == 0

    @pytest.mark.parametrize("epoch", [8, (1 << 31) - 1])
    def test_a_disk_that_others_filled_still_takes_the_next_epoch(self, epoch: int) -> None:
        """Else the server would register, fail to obey, and register again, without end."""
        for seed in range(20):
            disk = ForgetfulDisk(name="a", capacity_bytes=1 << 20)
            allegiance = allegiance_of(store_on(disk))
            allegiance.meet(7)
            disk.capacity_bytes = 0

            allegiance.meet(epoch)
            disk.crash(random.Random(seed))

            assert allegiance.epoch == epoch and read_epoch(disk) == epoch
            assert not disk.exists(EPOCHS + ".new")

    @given(st.binary(max_size=40))
    def test_a_file_that_cannot_be_read_is_said_and_never_guessed(self, content: bytes) -> None:
        disk = ForgetfulDisk(name="a")
        store_on(disk)
        file = disk.open(EPOCHS, create=True)
        file.write(content, 0)

        try:
            epoch = read_epoch(disk)
        except Corrupt as error:
            assert "a/epochs cannot be read" in str(error)
        else:
            assert 0 <= epoch < 1 << 31


class TestOrders:
    def allegiance(self) -> Allegiance:
        allegiance = Allegiance(0, lambda epoch: None)
        allegiance.meet(4)
        return allegiance

    def test_an_order_counts_from_when_its_news_was_sent(self) -> None:
        allegiance = self.allegiance()
        number = allegiance.numbered(100.0)

        assert allegiance.admit(delete(4, number), 107.0, CONTACT_S) == 100.0

    def test_an_order_that_rests_on_old_news_is_refused(self) -> None:
        """A leader that was stopped wakes up and sends what it had decided: its successor may be
        unknown here."""
        allegiance = self.allegiance()
        number = allegiance.numbered(100.0)
        allegiance.numbered(109.0)

        with pytest.raises(StaleMaster, match=r"9\.0 s old; orders count for 8\.0 s"):
            allegiance.admit(delete(4, number), 109.0, CONTACT_S)

    def test_an_order_that_names_no_message_of_this_life_is_refused(self) -> None:
        with pytest.raises(StaleMaster, match="message 17"):
            self.allegiance().admit(delete(4, 17), 1.0, CONTACT_S)

    def test_an_order_of_a_deposed_master_is_refused_however_fresh(self) -> None:
        allegiance = self.allegiance()
        number = allegiance.numbered(100.0)
        allegiance.meet(5)

        with pytest.raises(StaleMaster, match="DeleteChunk is of epoch 4"):
            allegiance.admit(delete(4, number), 100.1, CONTACT_S)

    def test_every_command_says_what_it_rests_on(self) -> None:
        assert all("since" in kind.__struct_fields__ for kind in COMMANDS)

    def test_ids_of_two_epochs_never_meet(self) -> None:
        assert epoch_of_command(first_command_id(7) + (1 << 31)) == 7
        assert first_command_id(8) > first_command_id(7) + (1 << 31)


class Runner:
    """Carries out a command when it is let."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.has_begun = threading.Event()
        self.done: list[Command] = []

    def run(self, command: Command, since_s: float) -> tuple[int, int]:
        self.has_begun.set()
        assert self.may_end.wait(60.0)
        self.done.append(command)
        return 1, 0


class TestQueue:
    def run(self, scenario: Any) -> None:
        asyncio.run(asyncio.wait_for(scenario(), 60.0))

    def queue(self, runner: Any, told: list[Outcome]) -> tuple[CommandQueue, Allegiance]:
        def fail(bug: BaseException, where: str) -> Any:
            raise AssertionError(where) from bug

        allegiance = Allegiance(1, lambda epoch: None)
        return CommandQueue(runner, allegiance, told.append, lambda e: None, fail), allegiance

    def test_nothing_is_reported_while_an_older_masters_order_is_underway(self) -> None:
        """M6: of two replicas the old master has one deleted here; a new one that is told that both
        are there has the other one deleted."""

        async def scenario() -> None:
            runner, told = Runner(), list[Outcome]()
            queue, allegiance = self.queue(runner, told)
            queue.put(delete(1, 1), 0.0)
            await asyncio.to_thread(runner.has_begun.wait, 60.0)
            allegiance.meet(2)

            settled = asyncio.ensure_future(queue.settled(2))
            await asyncio.sleep(0)
            assert not settled.done()
            runner.may_end.set()
            await settled
            assert len(runner.done) == len(told) == 1

        self.run(scenario)

    def test_an_order_that_waited_while_its_master_was_deposed_is_refused(self) -> None:
        async def scenario() -> None:
            runner, told = Runner(), list[Outcome]()
            queue, allegiance = self.queue(runner, told)
            queue.put(delete(1, 1), 0.0)
            queue.put(
                DeleteChunk(first_command_id(1) + 1, ChunkHandle(1), ChunkVersion(2), ""), 0.0
            )
            queue.collect(ChunkHandle(2), ChunkVersion(1), 1)
            await asyncio.to_thread(runner.has_begun.wait, 60.0)
            allegiance.meet(2)
            runner.may_end.set()
            await queue.settled(2)
            while len(told) < 2:
                await asyncio.sleep(0.01)

            assert told[1].error.startswith("StaleMaster: DeleteChunk is of epoch 1")

        self.run(scenario)
