"""Jobs that read and write `s3://` of our own door: what is in the output is whole, or not there.

The committer itself is tried against moto in tests/unit/mapreduce/dataflow/test_s3.py.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import endpoint
from tests.support.local_jobs import Desk
from tests.support.object_store import keys_in, uploads_in

WORDS = ("-mapper", "tr ' ' '\\n'", "-reducer", "uniq -c", "-numReduceTasks", "2")


@pytest.fixture
def desk(
    doors: GatewayCluster, key: Secret, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """A machine without a cluster, whose object store is the door."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint(doors),
        "AWS_CA_BUNDLE": doors.authority,
        "AWS_ACCESS_KEY_ID": key.id,
        "AWS_SECRET_ACCESS_KEY": key.secret,
        "AWS_DEFAULT_REGION": "eu-nowhere-1",
        "NO_PROXY": "*",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Desk(tmp_path)


def filled(s3: Any, bucket: str) -> dict[str, bytes]:
    texts = {f"in/{n}.txt": b"".join(b"b a %d\n" % (m % 7) for m in range(500)) for n in range(3)}
    for name, text in texts.items():
        s3.put_object(Bucket=bucket, Key=name, Body=text)
    return texts


def test_a_job_from_store_to_store_gives_the_bytes_of_local_files(
    desk: Desk, s3: Any, bucket: str, doors: GatewayCluster
) -> None:
    """SM-08: a source that is not the dfs. (Its API and flows are tested under MR-42.)"""
    for name, text in filled(s3, bucket).items():
        desk.write(name, text)

    there = desk.run("-input", f"s3://{bucket}/in", "-output", f"s3a://{bucket}/out", *WORDS)
    here = desk.job(*WORDS)

    assert there.status == 0, there.stderr
    assert here.status == 0, here.stderr
    names = ["_SUCCESS", "part-00000", "part-00001"]
    assert keys_in(s3, bucket, "out/") == [f"out/{name}" for name in names]
    found = {n: s3.get_object(Bucket=bucket, Key=f"out/{n}")["Body"].read() for n in names}
    assert found == desk.parts()
    assert uploads_in(s3, bucket) == []
    # What a store holds is what the dfs holds.
    listed = doors.mrstream("dfs", "-ls", "-C", f"/{bucket}/out").stdout.decode().split()
    assert listed == [f"/{bucket}/out/{name}" for name in names]
    again = desk.run("-input", f"s3://{bucket}/in", "-output", f"s3://{bucket}/out", *WORDS)
    assert again.status == 5
    assert f"Output directory s3://{bucket}/out already exists" in again.stderr


def test_a_failed_job_leaves_nothing_and_says_why(desk: Desk, s3: Any, bucket: str) -> None:
    filled(s3, bucket)
    script = desk.write("r.sh", "cat; grep -q x /dev/null || exit 3\n")

    ran = desk.run(
        "-input", f"s3://{bucket}/in", "-output", f"s3://{bucket}/out", "-mapper", "cat",
        "-reducer", f"sh {script}", "-numReduceTasks", "2",
    )  # fmt: skip

    assert ran.status == 1
    assert "exit code 3" in ran.stderr
    assert keys_in(s3, bucket, "out/") == []
    assert uploads_in(s3, bucket) == []


def test_a_driver_that_is_killed_shows_nothing_and_the_next_clears_up(
    desk: Desk, s3: Any, bucket: str
) -> None:
    """One reduce is committed, one runs: neither is seen, and no upload stays for ever."""
    filled(s3, bucket)
    mark = desk.cwd / "second"
    waits = desk.write(
        "r.py",
        f"""
import os, sys, time
number = os.environ["mapreduce_task_partition"]
if number == "1" and not os.path.exists({str(mark)!r}):
    open({str(mark)!r}, "w").close()
    time.sleep(1000)
sys.stdout.writelines(sys.stdin)
""",
    )
    words = (
        "-input", f"s3://{bucket}/in", "-output", f"s3://{bucket}/out", "-mapper", "cat",
        "-reducer", f"python3 {waits}", "-numReduceTasks", "2",
        "-D", "mapreduce.local.reduce.tasks.maximum=1",
    )  # fmt: skip
    process = desk.start(*words)
    until = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < until and process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)

    seen = [key for key in keys_in(s3, bucket, "out/") if "/_temporary/" not in key]
    left = uploads_in(s3, bucket)
    again = desk.run("-overwrite", *words)

    assert seen == []
    assert "out/part-00000" in left
    assert again.status == 0, again.stderr
    parts = ["_SUCCESS", "part-00000", "part-00001"]
    assert keys_in(s3, bucket, "out/") == [f"out/{name}" for name in parts]
    assert uploads_in(s3, bucket) == []


def test_an_input_that_is_not_there_is_one_line(desk: Desk, bucket: str) -> None:
    ran = desk.run("-input", f"s3://{bucket}/no", "-output", f"s3://{bucket}/out", *WORDS)

    assert ran.status == 5
    assert f"Input path does not exist: s3://{bucket}/no" in ran.stderr
    assert "Traceback" not in ran.stderr
