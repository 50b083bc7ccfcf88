"""What a watcher knows, and how news changes it (view/picture.py)."""

from __future__ import annotations

from mrstream.mapreduce.snapshot import Changes, ClusterSnapshot, HostRow, JobSeen
from mrstream.view.picture import ChunkCounts, FileEntry, Picture
from tests.support import tui_states
from tests.support.tui_states import JOB


def test_news_that_holds_nothing_new_changes_nothing() -> None:
    """A page that did not change is not sent again."""
    picture, source = Picture(), tui_states.busy()

    first = picture.see_cluster(source.snapshot(0, 0))
    again = picture.see_cluster(source.snapshot(picture.hosts.version, picture.jobs.version))
    source.hosts.put(HostRow("h1", load=9.0))
    changed = picture.see_cluster(source.snapshot(picture.hosts.version, picture.jobs.version))

    assert (first, again, changed) == (True, False, True)


def test_a_host_that_is_gone_leaves_the_picture() -> None:
    picture = Picture()
    picture.see_cluster(ClusterSnapshot(1.0, Changes(1, (HostRow("h1"),), whole=True), Changes(1)))

    picture.see_cluster(ClusterSnapshot(2.0, Changes(2, gone=("h1",)), Changes(1)))

    assert list(picture.hosts) == [] and picture.at_s == 2.0


def test_the_job_being_watched_can_be_another_and_can_be_forgotten() -> None:
    picture, source = Picture(), tui_states.failing()
    for job_id in (JOB, "job_1700000000_0005"):
        picture.see_job(source.job(job_id, JobSeen()))
        assert picture.job is not None and picture.job.job.key == job_id
        assert len(picture.job.events) == picture.job_seen.events == 30

    picture.forget_job()

    assert (picture.job, picture.job_seen, picture.remarks) == (None, JobSeen(), ())


def test_chunks_are_healthy_while_they_are_repaired_only_if_none_lacks_a_replica() -> None:
    assert ChunkCounts(total=9, repairing=1).healthy
    assert not ChunkCounts(total=9, under_replicated=1).healthy


def test_the_name_of_an_entry_is_the_last_of_its_path() -> None:
    names = [FileEntry(path, True, 0, 0, "", "", 0, 0.0).name for path in ("/a/b", "/a/", "/")]

    assert names == ["b", "a", ""]
