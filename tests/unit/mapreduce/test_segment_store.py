"""Segments outlive the worker's process, complete or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from mrstream.mapreduce.attempt.attempt_report import Done, PartitionSize
from mrstream.mapreduce.worker.segment_store import SegmentStore

ATTEMPT = "attempt_1700000000000_0001_m_000003_0"
OTHER = "attempt_1700000000000_0002_m_000000_0"
DONE = Done({"group": {"name": 7}}, (PartitionSize(0, 1, 1, 1, 1),), segment_bytes=5)


def written(store: SegmentStore, attempt_id: str) -> str:
    path = store.new_path(attempt_id)
    Path(path).write_bytes(b"bytes")
    return path


def test_a_segment_is_found_only_once_its_attempt_is_done(tmp_path: Path) -> None:
    store = SegmentStore([str(tmp_path)])
    path = written(store, ATTEMPT)
    assert store.find(ATTEMPT) is None

    store.keep(ATTEMPT, path, DONE)

    found = store.find(ATTEMPT)
    assert found is not None
    assert Path(found).read_bytes() == b"bytes"


def test_a_new_life_offers_complete_segments_with_their_counters(tmp_path: Path) -> None:
    """Segments come back from re-registering workers; maps are not repeated."""
    store = SegmentStore([str(tmp_path)])
    store.keep(ATTEMPT, written(store, ATTEMPT), DONE)
    written(store, OTHER)

    ((attempt_id, done),) = SegmentStore([str(tmp_path)]).held()

    assert attempt_id == ATTEMPT
    assert done.counters == DONE.counters
    assert done.partitions == ()


def test_a_new_life_clears_what_was_never_complete(tmp_path: Path) -> None:
    store = SegmentStore([str(tmp_path)])
    left = written(store, ATTEMPT)

    SegmentStore([str(tmp_path)])

    assert not os.path.exists(left)


def test_an_end_that_never_reached_the_disk_is_no_end(tmp_path: Path) -> None:
    """After a power cut a file may be there without its bytes."""
    store = SegmentStore([str(tmp_path)])
    store.keep(ATTEMPT, written(store, ATTEMPT), DONE)
    found = store.find(ATTEMPT)
    assert found is not None
    Path(found.removesuffix(".segment") + ".done").write_bytes(b"")

    assert SegmentStore([str(tmp_path)]).held() == []


def test_a_job_that_is_over_leaves_no_segment(tmp_path: Path) -> None:
    store = SegmentStore([str(tmp_path)])
    for attempt_id in (ATTEMPT, OTHER):
        store.keep(attempt_id, written(store, attempt_id), DONE)

    gone = store.drop_job("job_1700000000000_0001")

    assert gone == [ATTEMPT]
    assert [attempt_id for attempt_id, _ in store.held()] == [OTHER]
    assert os.listdir(tmp_path / "segments") == ["job_1700000000000_0002"]
