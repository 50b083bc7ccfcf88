"""Splits and output over a real dfs: planned by chunk, read, committed by rename."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow.committer import Committer, OutputExists
from mrstream.mapreduce.dataflow.files import Files, InputReplaced, RoutedFiles, join
from mrstream.mapreduce.dataflow.input_paths import InvalidInput
from mrstream.mapreduce.dataflow.split_plan import plan_splits
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf
from tests.cluster.local import LocalCluster

CHUNK_BYTES = 1024 * 1024


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("dfs-files")
    with LocalCluster(directory, 2, dfs={"replication": "1"}) as started:
        yield started


@pytest.fixture
def files(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The cluster's dfs as the default file system of a job."""
    monkeypatch.setenv("MRSTREAM_HOME", str(Path(cluster.file).parents[2]))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    return RoutedFiles("dfs://test/")


def put(files: Files, path: str, content: bytes) -> None:
    with files.create(files.qualify(path)) as out:
        out.write(content)


def test_a_file_is_cut_at_its_chunks_and_each_split_knows_its_hosts(files: Files) -> None:
    """MapReduce §3.4: the master schedules a map where a replica of its input is."""
    lines = [b"line %07d of a file of several chunks\n" % number for number in range(70_000)]
    put(files, "/in/d/big", b"".join(lines))
    put(files, "/in/d/_hidden", b"no\n")
    conf = JobConf({})

    plan = plan_splits(conf, ["/in/*"], files)
    in_order = sorted(plan.splits, key=lambda split: split.pieces[0].start)
    text = b"".join(b"".join(SplitReader(split, conf, files)) for split in in_order)

    assert text == b"".join(lines)
    assert [split.pieces[0].start for split in in_order] == [0, CHUNK_BYTES, 2 * CHUNK_BYTES]
    assert all(len(split.hosts) == 1 for split in plan.splits)
    assert {host for split in plan.splits for host in split.hosts} <= {"h1", "h2"}


@pytest.mark.parametrize("version", ["1", "2"])
def test_output_is_committed_by_rename(files: Files, version: str) -> None:
    """D3, over the dfs; spec 8.4."""
    output = f"/out/v{version}"
    conf = JobConf({"mapreduce.fileoutputcommitter.algorithm.version": version})
    committer = Committer(conf, output, files)
    committer.check_output()
    committer.setup_job()
    for attempt, content in (("0", b"half"), ("1", b"a\t1\n")):
        attempt_id = f"attempt_1_0001_r_000000_{attempt}"
        with files.create(join(committer.setup_task(attempt_id), "part-00000")) as out:
            out.write(content)
    committer.abort_task("attempt_1_0001_r_000000_0")
    for _ in range(2):
        committer.commit_task("attempt_1_0001_r_000000_1")
    for _ in range(2):
        committer.commit_job()

    url = files.qualify(output)
    assert [status.name for status in files.list(url)] == ["_SUCCESS", "part-00000"]
    assert files.open(f"{url}/part-00000").read() == b"a\t1\n"
    with pytest.raises(OutputExists, match=f"^Output directory dfs://test{output} already exists$"):
        committer.check_output()


def test_of_two_local_jobs_that_both_found_nothing_one_gets_the_directory(files: Files) -> None:
    """They may be of two machines: what is made in the dfs is all that they share."""
    one, two = Committer(JobConf({}), "/both", files), Committer(JobConf({}), "/both", files)
    one.check_output()
    two.check_output()
    one.take_output()

    with pytest.raises(OutputExists, match="/both already exists: another job has begun"):
        two.take_output()


def test_a_missing_input_is_named_with_its_cluster(files: Files) -> None:
    """Spec 1.4."""
    with pytest.raises(InvalidInput, match=r"^Input path does not exist: dfs://test/nope$"):
        plan_splits(JobConf({}), ["/nope"], files)


def test_a_file_that_is_replaced_after_the_plan_is_read_whole_or_not_at_all(files: Files) -> None:
    """Its splits say which file they meant: the one before, while the trash has it."""
    put(files, "/swap/in", b"old line\n" * 300_000)
    conf = JobConf({})
    splits = plan_splits(conf, ["/swap/in"], files).splits
    assert len(splits) > 1

    put(files, "/swap/in", b"new line\n" * 300_000)

    for split in splits:
        with pytest.raises(InputReplaced, match="was replaced by another file"):
            list(SplitReader(split, conf, files))
