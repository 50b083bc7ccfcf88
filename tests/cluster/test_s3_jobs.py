"""Jobs of a cluster that read and write an object store: its hosts upload, its master commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.local import LocalCluster
from tests.support.object_store import client_of, keys_in, made_bucket, running_store, uploads_in

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker")
# The first attempt of each reduce fails when it has written everything.
REDUCER = """#!/usr/bin/env python3
import os, sys
sys.stdout.writelines(sys.stdin)
sys.stdout.flush()
if os.environ["mapreduce_task_attempt_id"].endswith("_0"):
    sys.exit("not today")
"""


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with running_store() as variables:
        yield variables


@pytest.fixture(scope="module")
def cluster(
    store: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("s3")
    (directory / "r.py").write_text(REDUCER)
    with LocalCluster(
        directory, 2, roles=ROLES, slots=2, extras=["s3"], environment=store
    ) as running:
        yield running


@pytest.fixture(scope="module")
def s3(store: dict[str, str]) -> Any:
    return client_of(store)


def test_a_job_commits_what_its_last_attempts_uploaded(cluster: LocalCluster, s3: Any) -> None:
    bucket = made_bucket(s3, "cluster")
    for number in range(3):
        s3.put_object(Bucket=bucket, Key=f"in/{number}", Body=b"b a\nc a\n")
    words = (
        "-input", f"s3://{bucket}/in", "-output", f"s3://{bucket}/out", "-mapper", "tr ' ' '\\n'",
        "-reducer", "r.py", "-numReduceTasks", "2",
    )  # fmt: skip

    ran = cluster.mrstream(*words)
    again = cluster.mrstream(*words)
    over = cluster.mrstream("-overwrite", *words)

    assert ran.returncode == 0, ran.stderr.decode()
    assert b"Failed reduce tasks=2" in ran.stderr
    assert again.returncode == 5
    assert f"Output directory s3://{bucket}/out already exists" in again.stderr.decode()
    assert over.returncode == 0, over.stderr.decode()
    parts = ["out/part-00000", "out/part-00001"]
    assert keys_in(s3, bucket, "out/") == ["out/_SUCCESS", *parts]
    bodies = [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in parts]
    assert sorted(b"".join(bodies).split()) == [b"a"] * 6 + [b"b"] * 3 + [b"c"] * 3
    assert uploads_in(s3, bucket) == []


def test_a_job_that_fails_for_good_leaves_nothing(cluster: LocalCluster, s3: Any) -> None:
    bucket = made_bucket(s3, "failing")
    s3.put_object(Bucket=bucket, Key="in", Body=b"a\n")

    ran = cluster.mrstream(
        "-input", f"s3://{bucket}/in", "-output", f"s3://{bucket}/out", "-mapper", "cat",
        "-reducer", "r.py", "-D", "mapreduce.reduce.maxattempts=1",
    )  # fmt: skip

    assert ran.returncode == 1
    assert keys_in(s3, bucket) == ["in"]
    assert uploads_in(s3, bucket) == []
