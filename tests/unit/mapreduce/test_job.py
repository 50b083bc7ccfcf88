"""mapreduce/job/job.py: a job as data, and what it needs where it runs."""

from __future__ import annotations

import msgspec
import pytest

from mrstream.cluster.config import extras
from mrstream.cluster.config.config import ClusterConfig
from mrstream.cluster.config.extras import MissingExtra
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program

SPEC = JobSpec(JobId("job_1_0001"), {}, Program(), None, None, 0, (), None)
NEEDS_SAW = msgspec.structs.replace(SPEC, extras=("saw",))


def test_a_job_of_a_version_before_extras_is_read_as_one_that_needs_none() -> None:
    """A master's journal may hold it."""
    fields = msgspec.msgpack.decode(job.encode(NEEDS_SAW))
    del fields["extras"]

    assert job.decode(msgspec.msgpack.encode(fields)) == SPEC
    assert job.decode(job.encode(NEEDS_SAW)) == NEEDS_SAW


def test_a_job_for_a_cluster_needs_its_extras_there_and_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here because its input is planned, and a failed attempt repeated, with the same libraries."""
    without = ClusterConfig("lab", "h1", ())
    with_saw = ClusterConfig("lab", "h1", (), extras=("saw",))

    monkeypatch.setitem(extras.MODULES, "saw", ("json",))
    job.require_extras(NEEDS_SAW)
    job.require_extras(NEEDS_SAW, with_saw)
    with pytest.raises(MissingExtra, match="which cluster lab does not have"):
        job.require_extras(NEEDS_SAW, without)

    monkeypatch.setitem(extras.MODULES, "saw", ("no_such_library",))
    job.require_extras(SPEC, with_saw)
    with pytest.raises(MissingExtra, match="this machine has no no_such_library"):
        job.require_extras(NEEDS_SAW, with_saw)
