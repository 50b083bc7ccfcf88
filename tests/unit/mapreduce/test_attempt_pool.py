"""Attempts in processes of a real zygote, one after another in each."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator

import pytest

from mrstream.mapreduce.attempt.attempt_report import Done, Failed, Message, Noted, Ready, send
from mrstream.mapreduce.attempt.zygote import Ended, Zygote
from mrstream.mapreduce.worker.attempt_pool import AttemptPool, RunningAttempt

NONSENSE = {
    b"garble": struct.pack("<I", 2000) + b"\x91" * 2000,
    b"promise": struct.pack("<I", 2**32 - 1),
}
JOB, OTHER_JOB = "job_1_0001", "job_1_0002"


def process(order: bytes, report: int, lifeline: int) -> int:
    """An attempt's process that notes its pid and the order; it goes on if the order says so."""
    while True:
        send(report, Noted("INFO", f"{os.getpid()} {order.decode()}"))
        if order == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        if order in NONSENSE:
            os.write(report, NONSENSE[order])
        if order == b"hang" or order in NONSENSE:
            signal.pause()
        send(report, Done({}))
        if order != b"go on":
            return 0
        send(report, Ready())
        with socket.socket(fileno=os.dup(report)) as ours:
            head = ours.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return 0
            order = ours.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)


class Pool:
    """A pool on a loop of its own, and what its attempts noted."""

    def __init__(self) -> None:
        self._zygote = Zygote(process)
        self.notes: list[str] = []
        self.count = 0

    def run(self, test: Callable[[AttemptPool], Awaitable[None]]) -> None:
        async def running() -> None:
            pool = AttemptPool(self._zygote, asyncio.get_running_loop(), _no_failure)
            pool.open()
            try:
                await test(pool)
            finally:
                pool.close()

        asyncio.run(running())

    def attempt(self, job_id: str = JOB, kind: str = "m") -> RunningAttempt:
        self.count += 1
        name = f"attempt_{job_id.removeprefix('job_')}_{kind}_{self.count:06d}_0"
        return RunningAttempt(name, self._hear)

    def pids(self) -> list[int]:
        return [int(note.split()[0]) for note in self.notes]

    def _hear(self, attempt: RunningAttempt, message: Message) -> None:
        if isinstance(message, Noted):
            self.notes.append(message.text)
        if isinstance(message, Done | Failed):
            attempt.outcome = message


def _no_failure(error: BaseException, where: str) -> None:
    raise AssertionError(where) from error


@pytest.fixture
def world() -> Iterator[Pool]:
    yield Pool()


def test_a_process_that_is_ready_takes_the_next_map_of_its_job(world: Pool) -> None:
    async def test(pool: AttemptPool) -> None:
        for _ in range(3):
            attempt = world.attempt()
            assert await pool.run(attempt, b"go on") is None
            assert attempt.outcome == Done({})

    world.run(test)

    assert len(world.notes) == 3
    assert len(set(world.pids())) == 1


def test_maps_of_another_job_and_reduces_get_processes_of_their_own(world: Pool) -> None:
    """A process holds connections of its job's user; a reduce's socket carries news of maps."""

    async def test(pool: AttemptPool) -> None:
        await pool.run(world.attempt(), b"go on")
        await pool.run(world.attempt(OTHER_JOB), b"go on")
        await pool.run(world.attempt(kind="r"), b"once")

    world.run(test)

    assert len(set(world.pids())) == 3


def test_two_attempts_at_once_are_two_processes(world: Pool) -> None:
    async def test(pool: AttemptPool) -> None:
        await asyncio.gather(*(pool.run(world.attempt(), b"go on") for _ in range(2)))

    world.run(test)

    assert len(set(world.pids())) == 2


def test_a_process_that_ends_says_how(world: Pool) -> None:
    async def test(pool: AttemptPool) -> None:
        await pool.run(world.attempt(), b"go on")
        ended = await pool.run(world.attempt(), b"die")
        assert isinstance(ended, Ended)
        assert ended.status == -signal.SIGKILL
        assert await pool.run(world.attempt(), b"go on") is None

    world.run(test)

    first, died, after = world.pids()
    assert first == died != after


def test_to_kill_an_attempt_that_is_over_does_not_hurt_the_next_in_its_process(world: Pool) -> None:
    async def test(pool: AttemptPool) -> None:
        over = world.attempt()
        await pool.run(over, b"go on")
        running = asyncio.ensure_future(pool.run(world.attempt(), b"once"))
        await asyncio.sleep(0)
        pool.kill(over)
        ended = await running
        assert ended is not None
        assert ended.status == 0

    world.run(test)


def test_a_killed_attempt_takes_its_process_along(world: Pool) -> None:
    async def test(pool: AttemptPool) -> None:
        await pool.run(world.attempt(), b"go on")
        attempt = world.attempt()
        running = asyncio.ensure_future(pool.run(attempt, b"hang"))
        while len(world.notes) < 2:
            await asyncio.sleep(0.001)
        attempt.kill_reason = "a test"
        pool.kill(attempt)
        ended = await running
        assert ended is not None
        assert ended.status == -signal.SIGKILL

    world.run(test)


def test_processes_of_a_job_that_is_forgotten_end(world: Pool) -> None:
    async def test(pool: AttemptPool) -> None:
        attempt = world.attempt()
        await pool.run(attempt, b"go on")
        (pid,) = world.pids()
        handle = os.pidfd_open(pid)

        pool.forget(attempt.job_id)

        gone = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(handle, gone.set_result, None)
        await asyncio.wait_for(gone, 60)
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)

    world.run(test)


@pytest.mark.parametrize("order", [b"garble", b"promise"])
def test_a_process_that_says_nonsense_is_killed_and_its_attempt_has_failed(
    world: Pool, order: bytes
) -> None:
    """It ended the worker, with all other attempts."""

    async def test(pool: AttemptPool) -> None:
        attempt = world.attempt()

        ended = await pool.run(attempt, order)

        assert ended is not None and ended.status == -signal.SIGKILL
        assert isinstance(attempt.outcome, Failed)
        assert await pool.run(world.attempt(), b"go on") is None

    world.run(test)
