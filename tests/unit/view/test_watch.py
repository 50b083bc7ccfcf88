"""One picture for many lookers (view/watch.py)."""

from __future__ import annotations

import threading

import pytest

from mrstream.cluster.config.config import DFS_MASTER
from mrstream.cluster.errors import Unavailable, UserError
from mrstream.cluster.leader.group_view import GroupView
from mrstream.mapreduce.snapshot import COMMITTED, ClusterSnapshot, JobSeen, JobSnapshot
from mrstream.view.watch import BOARDS_MAX, FIRST_GROUPS_S, Watch
from tests.support.tui_states import JOB, Recorded, busy, group, groups, lost


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class Counted(Recorded):
    """A source that counts what it is asked."""

    asked = 0

    def snapshot(self, hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        self.asked += 1
        return super().snapshot(hosts_version, jobs_version)

    def job(self, job_id: str, seen: JobSeen) -> JobSnapshot:
        self.asked += 1
        return super().job(job_id, seen)


def counted() -> Counted:
    source = Counted()
    vars(source).update(vars(busy()))
    return source


def test_fifty_lookers_cost_the_master_what_one_costs() -> None:
    source, clock = counted(), Clock()
    watch = Watch(source, clock)

    for _ in range(50):
        with watch.picture() as picture:
            assert len(picture.jobs) == 3
        clock.s += 0.01

    assert source.asked == 1
    clock.s += 0.5
    with watch.picture():
        assert source.asked == 2


def test_nobody_is_asked_while_nobody_looks() -> None:
    source, clock = counted(), Clock()
    watch = Watch(source, clock)

    clock.s += 3600

    assert source.asked == 0
    with watch.job(JOB) as (board, _):
        assert board.job.key == JOB


def test_the_last_picture_stays_when_the_master_is_lost() -> None:
    source, clock = busy(), Clock()
    watch = Watch(source, clock)
    with watch.picture(), watch.job(JOB):
        pass

    source.lost, clock.s = "nobody there", 9.0

    with watch.picture() as picture:
        assert picture.lost_reason == "nobody there"
        assert len(picture.jobs) == 3
    with watch.job(JOB) as (board, _):
        assert board.job.maps == 200
    source.lost, clock.s = "", 18.0
    with watch.picture() as picture:
        assert picture.lost_reason == ""


def test_a_job_of_which_nothing_is_known_is_an_error_in_words() -> None:
    with pytest.raises(UserError, match="not shown"), Watch(busy()).job("job_1_0001"):
        pass
    with pytest.raises(Unavailable), Watch(lost()).job(JOB):
        pass


def test_a_job_that_the_master_shows_no_more_is_looked_up_in_its_history_once() -> None:
    source, clock = counted(), Clock()
    source.past[JOB] = source.boards.pop(JOB)
    watch = Watch(source, clock)

    for _ in range(3):
        clock.s += 10.0
        with watch.job(JOB) as (board, _):
            assert board.job.key == JOB
            assert len(board.attempts) == 200 and board.counters["words"] == {"odd": 3}
            assert (row := board.tasks.get("m000000")) and row.state == COMMITTED
            assert board.rates == []

    assert source.asked == 1


def test_what_groups_say_is_told_while_no_master_answers() -> None:
    """That is when it matters."""
    source, clock = busy(), Clock()
    watch = Watch(source, clock)
    with watch.picture() as picture:
        assert picture.groups["dfs"].leader == "h1"

    source.lost, clock.s = "nobody there", 9.0
    source.led = groups(group(DFS_MASTER, "", 7, silent=("h1", "h2")))

    with watch.picture() as picture:
        assert picture.lost_reason == "nobody there"
        assert picture.groups["dfs"].trouble() == "dfs: no quorum (1 of 3): changes are refused"


def test_the_first_look_alone_waits_for_groups() -> None:
    source, clock, waits = busy(), Clock(), list[float]()

    def waiting(wait_s: float = 0.0) -> dict[str, GroupView]:
        waits.append(wait_s)
        return {}

    source.groups = waiting  # type: ignore[method-assign]
    watch = Watch(source, clock)
    for clock.s in (0.0, 1.0, 2.0):
        with watch.picture():
            pass

    assert waits == [FIRST_GROUPS_S, 0.0, 0.0]


def test_only_the_boards_looked_at_last_are_kept() -> None:
    source = busy()
    for number in range(BOARDS_MAX + 8):
        source.boards[f"job_1_{number:04}"] = source.boards[JOB]
    watch = Watch(source)

    for job_id in source.boards:
        with watch.job(job_id):
            pass

    assert len(watch._jobs) == BOARDS_MAX


def test_after_something_was_done_the_next_look_asks() -> None:
    source = counted()
    watch = Watch(source, Clock())
    with watch.picture():
        pass

    watch.hurry()

    with watch.picture():
        assert source.asked == 2


def test_a_looker_does_not_wait_for_an_answer_that_another_waits_for() -> None:
    source, clock = counted(), Clock()
    watch = Watch(source, clock)
    with watch.picture():
        pass
    clock.s = 9.0
    asked, answer = threading.Event(), threading.Event()

    def slow(hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        asked.set()
        assert answer.wait(30)
        return Recorded.snapshot(source, hosts_version, jobs_version)

    source.snapshot = slow  # type: ignore[method-assign]

    def look() -> None:
        with watch.picture():
            pass

    first = threading.Thread(target=look)
    first.start()
    assert asked.wait(30)

    with watch.picture() as picture:
        assert len(picture.jobs) == 3
    answer.set()
    first.join()
