"""F2: a worker obeys the latest job master that it ever met, and nobody before it."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.worker.allegiance import Allegiance, StaleLeader


def test_a_master_that_is_alone_is_obeyed_however_often_it_starts() -> None:
    worker = Allegiance()

    for _ in range(3):
        worker.meet(0)

    assert worker.holds(0)


def test_orders_of_a_deposed_leader_are_void() -> None:
    worker = Allegiance()
    worker.meet(7)
    worker.meet(7)

    with pytest.raises(StaleLeader, match="epoch 6; one of epoch 7"):
        worker.meet(6)
    with pytest.raises(StaleLeader):
        worker.meet(0)  # an old master of before there was a group, back from the dead
    worker.meet(9)

    assert worker.epoch == 9


def test_a_right_that_a_leader_before_gave_is_void() -> None:
    worker = Allegiance()
    worker.meet(7)
    assert worker.holds(7)

    worker.meet(8)

    assert not worker.holds(7) and worker.holds(8)
