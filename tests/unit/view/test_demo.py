"""The simulated cluster as a source of pictures (view/demo.py)."""

from __future__ import annotations

import pytest

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.simulation import ClusterPlan, SimulatedCluster, Workload
from mrstream.mapreduce.snapshot import JobSeen
from mrstream.view.demo import DemoSource
from mrstream.view.picture import Picture
from mrstream.view.source import Source


def small() -> DemoSource:
    """Ten hosts whose time stands still unless a test lets it pass."""
    simulated = SimulatedCluster(ClusterPlan(hosts=10), Workload(maps=40, reduces=8), 1)
    return DemoSource(simulated, speed=0.0)


def test_a_picture_of_the_demonstration_has_hosts_a_job_and_its_curves() -> None:
    source = small()
    source.advance_to(60.0)
    watched: Source = source
    picture = Picture(cluster=watched.cluster)

    picture.see_cluster(watched.snapshot(0, 0))
    picture.see_job(watched.job(source.job_id, JobSeen()))

    assert len(picture.hosts) == len(watched.storage().servers) == 10
    assert picture.job is not None
    moments = [point.at_s for point in picture.job.rates]
    assert moments == [moments[0] + second for second in range(len(moments))]
    assert moments[-1] == 60.0
    assert [job.state for job in picture.jobs] == ["running"]


def test_the_demonstration_has_masters_that_are_well() -> None:
    source = small()
    source.advance_to(60.0)
    picture = Picture()

    picture.see_groups(source.groups(), source.now_s())

    assert list(picture.groups) == ["dfs", "jobs", "lock"]
    assert {len(view.answering) for view in picture.groups.values()} == {3}
    assert not [view.trouble() for view in picture.groups.values() if view.trouble()]
    assert picture.events[0].text == "dfs: h0001 leads, epoch 1"


def test_a_simulated_job_can_be_killed() -> None:
    source = small()
    source.advance_to(5.0)

    source.kill_job(source.job_id)

    (job,) = source.snapshot(0, 0).jobs.rows
    assert job.state == "killed"


def test_what_the_demonstration_does_not_have_is_refused_in_words() -> None:
    source = small()

    for refused in (
        lambda: source.job("job_1_0001", JobSeen()),
        lambda: source.preview("/input"),
        lambda: source.set_priority(source.job_id, "HIGH"),
    ):
        with pytest.raises(UserError, match="demonstration"):
            refused()


def test_the_files_of_the_demonstration_can_be_changed_and_brought_back() -> None:
    source = small()
    source.advance_to(60.0)

    upload = source.upload("/examples/new.txt")
    upload.write(b"one\n")
    with pytest.raises(UserError, match="no such file"):
        source.stat("/examples/new.txt")
    upload.close()
    source.make_directory("/examples/more")
    source.rename("/examples/new.txt", "/examples/more/new.txt")
    source.delete("/examples/more")
    gone = [entry.path for entry in source.trash().entries]
    source.undelete("/examples/more")

    assert gone == ["/examples/more"]
    assert b"".join(source.download("/examples/more/new.txt").pieces) == b"one\n"
    assert source.preview("/examples/words.txt.gz").startswith("The files of this")
    (place,) = source.chunks("/examples/more/new.txt")
    assert len(place.hosts) == 3


def test_an_upload_replaces_a_file_only_if_that_was_said() -> None:
    source = small()

    with pytest.raises(UserError, match="there already"):
        source.upload("/README.txt")

    source.upload("/README.txt", replace=True).close()
    assert source.stat("/README.txt").length_bytes == 0


def test_the_demonstration_does_not_eat_the_machine() -> None:
    upload = small().upload("/big")

    with pytest.raises(UserError, match="64 MiB"):
        for _ in range(65):
            upload.write(bytes(1 << 20))
