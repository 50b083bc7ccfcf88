"""Two masters over the same chunkservers, as real processes (EV-02, EV-03)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from botocore.exceptions import ClientError

from mrstream.cluster.config.config import GATEWAY
from mrstream.dfs.chunk import cell_of
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import WrongCell
from mrstream.dfs.protocol import Stat
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for
from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client, refusal

LOGS = f"{MASTER}@logs"
ROLES = (MASTER, LOGS, CHUNKSERVER, "mapreduce.master", "mapreduce.worker", GATEWAY)
DATA = random.Random(1).randbytes(2_500_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    settings = {"cells": "{logs: {path: /logs}}", "replication": "2"}
    directory = tmp_path_factory.mktemp("cells")
    gateway = "{hosts: [h1]}"
    with GatewayCluster(directory, gateway, roles=ROLES, dfs=settings, slots=1) as running:
        yield running


@pytest.fixture(scope="module")
def key(cluster: GatewayCluster) -> Secret:
    return cluster.key("all", "--user", "ann")


@pytest.fixture
def s3(cluster: GatewayCluster, key: Secret) -> Any:
    return client(cluster, key)


@pytest.fixture
def http(cluster: GatewayCluster, key: Secret) -> Iterator[requests.Session]:
    with cluster.session(key) as session:
        yield session


def good(cluster: LocalCluster, *words: str) -> str:
    ended = cluster.mrstream(*words)
    assert ended.returncode == 0, (words, ended.stderr.decode())
    return ended.stdout.decode()


def write(client: DfsClient, path: str, data: bytes = DATA) -> None:
    with writer.create(client, path, overwrite=True) as file:
        file.write(data)


def read(client: DfsClient, path: str) -> bytes:
    with DfsReader(client, path) as file:
        return file.read()


def chunks_on(cluster: LocalCluster, host: str) -> list[int]:
    place = cluster.host_directory(host) / CHUNKSERVER / "chunks"
    return [int(path.stem, 16) for path in place.glob("*/*.data")]


def test_verbs_see_one_tree_and_bytes_lie_side_by_side(cluster: LocalCluster) -> None:
    local = Path(cluster.shared) / "data"
    local.write_bytes(DATA)
    good(cluster, "dfs", "-mkdir", "/in")
    good(cluster, "dfs", "-put", str(local), "/in/a")
    good(cluster, "dfs", "-put", str(local), "/logs/b")

    listed = [line.split()[-1] for line in good(cluster, "dfs", "-ls", "/").splitlines()[1:]]
    assert listed == ["/in", "/logs"]
    for host in cluster.hosts:
        assert {cell_of(handle) for handle in chunks_on(cluster, host)} == {0, 1}
    moved = cluster.mrstream("dfs", "-mv", "/in/a", "/logs/a")
    assert moved.returncode == 1
    assert moved.stderr.decode() == (
        "mv: /in/a is in the root cell, /logs/a in cell logs: a rename does not cross cells; "
        "copy it (-cp), then delete it\n"
    )
    good(cluster, "dfs", "-cp", "/in/a", "/logs/a")
    good(cluster, "dfs", "-get", "/logs/a", str(local) + ".back")
    assert Path(str(local) + ".back").read_bytes() == DATA
    assert "Status: HEALTHY" in good(cluster, "dfs", "-fsck", "/")


def test_a_job_reads_and_writes_across_cells(cluster: LocalCluster) -> None:
    client = cluster.client()
    write(client, "/words/a", b"x\ny\n")
    write(client, "/logs/words", b"y\nz\n")
    ended = cluster.mrstream(
        "-input", "/words", "-input", "/logs/words", "-output", "/logs/counted",
        "-mapper", "cat", "-reducer", "uniq -c",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()
    assert read(client, "/logs/counted/part-00000").split() == b"1 x 2 y 1 z".split()
    assert cell_of(client.stat("/logs/counted/part-00000").file_id) == 1


def test_what_one_cell_throws_away_and_who_restarts_is_nothing_to_the_other(
    cluster: LocalCluster,
) -> None:
    """T of EV-02: garbage, a chunkserver's restart and the death of a master in one cell."""
    client = cluster.client(retry_s=60.0)
    write(client, "/keep/a")
    write(client, "/logs/keep")
    gone = {cell: _deleted(client, path) for cell, path in ((0, "/gone"), (1, "/logs/gone"))}
    cluster.kill(CHUNKSERVER, "h2")
    cluster.start(CHUNKSERVER, "h2")

    def collected() -> bool:
        left = {handle for host in cluster.hosts for handle in chunks_on(cluster, host)}
        return not left & {handle for handles in gone.values() for handle in handles}

    wait_for(collected, 60.0, "garbage of both cells to go")
    for role, other, own in ((LOGS, "/keep/a", "/logs/keep"), (MASTER, "/logs/keep", "/keep/a")):
        cluster.kill(role, "h1")
        write(client, other + "-meanwhile")
        assert read(client, other) == DATA
        cluster.start(role, "h1")
        assert read(client, own) == DATA
    assert {one.path for one in client.list("/")} >= {"/keep", "/logs"}


def _deleted(client: DfsClient, path: str) -> set[int]:
    write(client, path)
    handles = {int(chunk.handle) for chunk in client.locate(path).chunks}
    assert len(handles) == 3
    client.delete(path, skip_trash=True)
    return handles


def test_a_client_with_an_old_table_is_told_so(cluster: LocalCluster) -> None:
    from mrstream.cluster.leader.connection import connect_to_leader

    with (
        connect_to_leader(cluster.cluster, MASTER) as root,
        pytest.raises(WrongCell, match="your cluster file is older than the cluster"),
    ):
        root.call(Stat("/logs/words"), 10.0)


# --- the doors: a bucket may be a cell


def test_objects_are_copied_from_cell_to_cell(cluster: GatewayCluster, s3: Any) -> None:
    """Within a cell no byte moves; between two the gateway moves them, and nobody sees it."""
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="a", Body=DATA, Metadata={"made": "by hand"})
    etag = f'"{hashlib.md5(DATA).hexdigest()}"'
    for source, bucket, key in (("data/a", "logs", "x/a"), ("logs/x/a", "data", "b")):
        copied = s3.copy_object(Bucket=bucket, Key=key, CopySource=source)
        assert copied["CopyObjectResult"]["ETag"] == etag
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Body"].read() == DATA
        assert (got["ETag"], got["Metadata"]) == (etag, {"made": "by hand"})
    dfs = cluster.client()
    assert [cell_of(dfs.stat(path).file_id) for path in ("/logs/x/a", "/data/b")] == [1, 0]
    assert handles(dfs, "/logs/x/a").isdisjoint(handles(dfs, "/data/a"))

    s3.copy_object(Bucket="logs", Key="again", CopySource="logs/x/a")

    assert handles(dfs, "/logs/again") == handles(dfs, "/logs/x/a")
    with pytest.raises(ClientError) as refused:
        s3.copy_object(Bucket="logs", Key="never", CopySource="data/a", CopySourceIfNoneMatch=etag)
    assert refusal(refused.value) == (412, "PreconditionFailed")


def handles(dfs: DfsClient, path: str) -> set[int]:
    return {int(chunk.handle) for chunk in dfs.locate(path).chunks}


def test_an_upload_takes_its_parts_from_another_cell(cluster: GatewayCluster, s3: Any) -> None:
    """Parts lie in the bucket of their upload, so that the end of it needs one cell only: no byte
    of them moves twice."""
    s3.create_bucket(Bucket="parts")
    large = random.Random(2).randbytes(5 * MIB)
    s3.put_object(Bucket="parts", Key="large", Body=large)
    where = {"Bucket": "logs", "Key": "put/together"}
    where |= {"UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    first = s3.upload_part_copy(**where, PartNumber=1, CopySource="parts/large")
    last = s3.upload_part_copy(
        **where, PartNumber=2, CopySource="parts/large", CopySourceRange="bytes=10-99"
    )
    dfs = cluster.client()
    [upload] = dfs.list("/logs/.mrstream-uploads")
    part_chunks = handles(dfs, f"{upload.path}/00001")
    etags = [one["CopyPartResult"]["ETag"] for one in (first, last)]
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]

    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})

    assert s3.get_object(Bucket="logs", Key="put/together")["Body"].read() == large + large[10:100]
    assert part_chunks < handles(dfs, "/logs/put/together")


def test_a_bucket_that_is_a_cell_stays(cluster: GatewayCluster, s3: Any) -> None:
    dfs = cluster.client()
    for entry in dfs.list("/logs"):
        dfs.delete(entry.path, recursive=True, skip_trash=True)
    dfs.make_directory("/logs/kept/empty", parents=True)
    assert "logs" in [each["Name"] for each in s3.list_buckets()["Buckets"]]

    with pytest.raises(ClientError, match="is where cell logs is mounted: it stays") as refused:
        s3.delete_bucket(Bucket="logs")

    assert refusal(refused.value) == (403, "AccessDenied")
    assert dfs.stat("/logs/kept/empty").is_directory


def test_webhdfs_renames_within_a_cell_only(
    cluster: GatewayCluster, http: requests.Session
) -> None:
    """As between two name services of Hadoop's: an IOException that says so, and nothing moved."""
    dfs = cluster.client()
    write(dfs, "/moving/a", b"bytes")
    words = (
        "/moving/a is in the root cell, /logs/a in cell logs: a rename does not cross cells; copy "
        "it (-cp), then delete it"
    )
    for options in ({}, {"renameoptions": "OVERWRITE"}):
        put = {"op": "RENAME", "destination": "/logs/a", **options}
        answer = http.put(cluster.url("/moving/a"), params=put)
        assert (answer.status_code, exception(answer)) == (403, ("IOException", words))
    stays = [
        http.put(cluster.url("/logs"), params={"op": "RENAME", "destination": "/moving/logs"}),
        http.delete(cluster.url("/logs"), params={"op": "DELETE", "recursive": "true"}),
    ]
    for answer in stays:
        name, said = exception(answer)
        assert (answer.status_code, name) == (403, "AccessControlException")
        assert said == "/logs is where cell logs is mounted: it stays; name what is in it"
    assert read(dfs, "/moving/a") == b"bytes"
    moved = http.put(cluster.url("/moving/a"), params={"op": "RENAME", "destination": "/moving/b"})
    assert moved.json() == {"boolean": True}


def exception(answer: requests.Response) -> tuple[str, str]:
    told = answer.json()["RemoteException"]
    return told["exception"], told["message"]


def test_webhdfs_puts_files_of_several_cells_together(
    cluster: GatewayCluster, http: requests.Session
) -> None:
    dfs = cluster.client()
    for path, data in (("/logs/all", b"one "), ("/logs/two", b"two "), ("/three", b"three")):
        write(dfs, path, data)
    told = cluster.url("/logs/all")

    answer = http.post(told, params={"op": "CONCAT", "sources": "/logs/two,/three"})

    assert answer.status_code == 200, answer.text
    assert read(dfs, "/logs/all") == b"one two three"
    assert not {"/logs/two", "/three"} & {one.path for one in dfs.find("/")}
    gone = http.post(told, params={"op": "CONCAT", "sources": "/three"})
    assert gone.status_code == 404
    assert read(dfs, "/logs/all") == b"one two three"
