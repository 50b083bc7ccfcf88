"""cluster.tasks: work beside a loop."""

from __future__ import annotations

import asyncio

from mrstream.cluster.tasks import Tasks


def test_a_bug_is_told_and_an_end_by_request_is_none() -> None:
    bugs: list[BaseException] = []

    async def play() -> None:
        tasks = Tasks(asyncio.get_running_loop(), bugs.append)
        fault = ValueError("wrong")

        async def fail() -> None:
            raise fault

        tasks.start(fail())
        tasks.start(asyncio.Event().wait())  # type: ignore[arg-type]  # it never returns
        await asyncio.sleep(0)
        tasks.cancel()
        await tasks.over()

        assert bugs == [fault]
        assert not tasks

    asyncio.run(play())


def test_all_that_was_begun_is_waited_for() -> None:
    done: list[int] = []

    async def play() -> None:
        tasks = Tasks(asyncio.get_running_loop(), lambda bug: done.append(-1))

        async def work(number: int) -> None:
            await asyncio.sleep(0)
            done.append(number)

        for number in range(3):
            tasks.start(work(number))
        await tasks.over()

    asyncio.run(play())

    assert done == [0, 1, 2]
