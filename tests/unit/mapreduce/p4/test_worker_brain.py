"""The worker's brain, event by event."""

from __future__ import annotations

from mrstream.mapreduce.p4.brain.messages import (
    FilesStatus,
    FileStatus,
    NewSortJob,
    NewWorkerJob,
    RegisterAck,
    Shutdown,
    encode,
)
from mrstream.mapreduce.p4.brain.worker import (
    Beat,
    Command,
    Event,
    Run,
    Stop,
    TaskEnded,
    Tell,
    Warn,
    WorkerBrain,
)

MAP = NewWorkerJob(["in/a", "in/b"], "exec/map", "var/job-0/mapper-output/", 7)
SORT = NewSortJob(["x", "y"], "var/job-0/grouper-output/s", 7)
REDUCE = NewWorkerJob(["g/input_0"], "exec/reduce", "var/job-0/reducer-output", 7)


def told(brain: WorkerBrain, event: Event) -> list[Command]:
    return brain.handle(event, 0.0)


def test_heartbeats_begin_with_the_acknowledgement_and_once() -> None:
    """P4-04, M2: one for another process is not ours."""
    brain = WorkerBrain(7)

    assert isinstance(told(brain, RegisterAck("localhost", 6001, 8))[0], Warn)
    assert told(brain, RegisterAck("localhost", 6001, 7)) == [Beat()]
    assert told(brain, RegisterAck("localhost", 6001, 7)) == []


def test_tasks_run_and_are_reported_in_the_order_of_their_arrival() -> None:
    """P4-12, P4-15, R2 (one slash, never absolute), R3."""
    brain = WorkerBrain(7)
    outputs = ("var/job-0/mapper-output/a", "var/job-0/mapper-output/b")

    assert told(brain, MAP) == [Run(MAP, outputs)]
    assert told(brain, SORT) == []
    assert told(brain, REDUCE) == []
    assert told(brain, TaskEnded()) == [
        Tell(FilesStatus(list(outputs), "finished", 7)),
        Run(SORT, ("var/job-0/grouper-output/s",)),
    ]
    assert told(brain, TaskEnded())[0] == Tell(
        FileStatus("var/job-0/grouper-output/s", "finished", 7)
    )
    assert told(brain, TaskEnded()) == [
        Tell(FilesStatus(["var/job-0/reducer-output/input_0"], "finished", 7))  # R1, P4-14
    ]


def test_a_reduce_is_reported_as_printed_if_the_user_says_so() -> None:
    """R1, M8: told by the last part of its directory; maps stay as they are."""
    brain = WorkerBrain(7, reduce_status_is_literal=True)
    told(brain, MAP)
    told(brain, REDUCE)

    assert told(brain, TaskEnded())[0] == Tell(
        FilesStatus(["var/job-0/mapper-output/a", "var/job-0/mapper-output/b"], "finished", 7)
    )
    assert told(brain, TaskEnded()) == [
        Tell(FileStatus("var/job-0/reducer-output/input_0", "finished", 7))
    ]


def test_a_shutdown_stops_at_once() -> None:
    """P4-21, M9."""
    brain = WorkerBrain(7)
    told(brain, MAP)

    assert told(brain, Shutdown()) == [Stop()]
    assert told(brain, TaskEnded()) == []


def test_a_status_has_the_fields_that_are_printed_and_no_other() -> None:
    """M5, M7."""
    assert encode(FilesStatus(["a"], "finished", 7)) == (
        b'{"message_type":"status","output_files":["a"],"status":"finished","worker_pid":7}'
    )
    assert encode(FileStatus("a", "finished", 7)) == (
        b'{"message_type":"status","output_file":"a","status":"finished","worker_pid":7}'
    )
