"""Clients of S3 that other people wrote: s3fs, pyarrow, awscli, and many at a time (doors §5).

DuckDB's httpfs has to be of DuckDB's very version: `make interop` runs it in an environment of its
own (duckdb_httpfs.py), and test_recorded.py says again what it said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest

from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client, endpoint
from tests.doors.test_s3_objects import body


@pytest.fixture
def s3fs(doors: GatewayCluster, key: Secret) -> Any:
    return fsspec.filesystem(
        "s3",
        key=key.id,
        secret=key.secret,
        endpoint_url=endpoint(doors),
        client_kwargs={"verify": doors.authority, "region_name": "x"},
        config_kwargs={"proxies": {}, "s3": {"addressing_style": "path"}},
        skip_instance_cache=True,
    )


def test_s3fs_does_what_a_file_system_does(s3fs: Any, bucket: str, tmp_path: Path) -> None:
    data = os.urandom(11 * MIB)
    with s3fs.open(f"{bucket}/d/big", "wb", block_size=5 * MIB) as file:
        file.write(data)
    s3fs.pipe({f"{bucket}/d/{name}": name.encode() for name in ("a", "b", "ü +")})

    assert s3fs.cat(f"{bucket}/d/big") == data
    with s3fs.open(f"{bucket}/d/big") as file:
        file.seek(6 * MIB)
        assert file.read(10) == data[6 * MIB : 6 * MIB + 10]
    assert sorted(s3fs.ls(f"{bucket}/d")) == [f"{bucket}/d/{n}" for n in ("a", "b", "big", "ü +")]
    assert s3fs.glob(f"{bucket}/*/[ab]") == [f"{bucket}/d/a", f"{bucket}/d/b"]
    assert s3fs.info(f"{bucket}/d")["type"] == "directory"
    s3fs.cp(f"{bucket}/d/a", f"{bucket}/e/a")
    s3fs.mv(f"{bucket}/d/b", f"{bucket}/e/b")
    assert sorted(s3fs.find(bucket)) == [
        f"{bucket}/{name}" for name in ("d/a", "d/big", "d/ü +", "e/a", "e/b")
    ]
    s3fs.get(f"{bucket}/d", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got" / "ü +").read_bytes() == "ü +".encode()
    s3fs.rm(f"{bucket}/d", recursive=True)
    assert not s3fs.exists(f"{bucket}/d") and s3fs.exists(f"{bucket}/e/a")


def test_pyarrow_writes_and_reads_a_partitioned_dataset(
    doors: GatewayCluster, key: Secret, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    place = urlsplit(endpoint(doors))
    files = pyarrow.fs.S3FileSystem(
        access_key=key.id,
        secret_key=key.secret,
        endpoint_override=place.netloc,
        scheme="https",
        region="x",
        tls_ca_file_path=doors.authority,
    )
    table = pyarrow.table({"year": [1, 1, 2] * 1000, "value": list(range(3000))})
    pyarrow.dataset.write_dataset(
        table, f"{bucket}/t", format="parquet", partitioning=["year"], filesystem=files
    )
    with files.open_output_stream(f"{bucket}/raw") as stream:
        for _ in range(12):
            stream.write(bytes(MIB))

    found = pyarrow.dataset.dataset(f"{bucket}/t", partitioning=["year"], filesystem=files)
    assert found.to_table().num_rows == 3000
    assert found.to_table(filter=pyarrow.dataset.field("year") == 2).num_rows == 1000
    assert files.get_file_info(f"{bucket}/raw").size == 12 * MIB
    assert files.get_file_info(f"{bucket}/none").type == pyarrow.fs.FileType.NotFound
    files.copy_file(f"{bucket}/raw", f"{bucket}/copy")
    files.delete_dir(f"{bucket}/t")
    selected = files.get_file_info(pyarrow.fs.FileSelector(bucket, recursive=True))
    assert sorted(each.base_name for each in selected if each.is_file) == ["copy", "raw"]


def test_awscli_copies_syncs_and_removes(
    doors: GatewayCluster, key: Secret, bucket: str, s3: Any, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for name in ("a", "sub/b", "sub/ü +"):
        (tree / name).write_bytes(name.encode() * 1000)
    (tree / "big").write_bytes(os.urandom(9 * MIB))
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))  # an object's time is of whole seconds: else it may seem the older
    environment = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "AWS_ACCESS_KEY_ID": key.id,
        "AWS_SECRET_ACCESS_KEY": key.secret,
        "AWS_DEFAULT_REGION": "x",
        "AWS_CA_BUNDLE": doors.authority,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def aws(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "awscli", "--endpoint-url", endpoint(doors), *words],
            env=environment, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    aws("s3", "sync", str(tree), f"s3://{bucket}/t")
    assert aws("s3", "sync", str(tree), f"s3://{bucket}/t") == "", "the second moves nothing"
    assert body(s3, bucket, "t/sub/ü +") == "sub/ü +".encode() * 1000
    aws("s3", "sync", f"s3://{bucket}/t", str(tmp_path / "back"))
    assert (tmp_path / "back" / "big").read_bytes() == (tree / "big").read_bytes()
    aws("s3", "rm", "--recursive", f"s3://{bucket}/t")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_awscli_takes_the_profile_that_key_add_tells(
    doors: GatewayCluster, bucket: str, tmp_path: Path
) -> None:
    told = doors.mrstream("key", "add", "profile").stderr.decode()
    text = told.partition("~/.aws/config:\n")[2].replace("/PATH/ca.pem", doors.authority)
    (tmp_path / "config").write_text(text)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AWS_") and "proxy" not in name.lower()
    } | {"AWS_CONFIG_FILE": str(tmp_path / "config")}

    done = subprocess.run(
        [sys.executable, "-m", "awscli", "--profile", "profile", "s3", "ls"],
        env=environment, capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert bucket in done.stdout.decode()


def test_64_clients_at_once_each_get_what_they_stored(
    doors: GatewayCluster, key: Secret, bucket: str
) -> None:
    """Over both gateways; an address may have 64 connections to each."""

    def work(number: int) -> bool:
        mine = client(doors, key, "h1" if number % 2 else "h2", retries={"max_attempts": 8})
        data = os.urandom(40_000 + number)
        mine.put_object(Bucket=bucket, Key=f"c/{number:02}", Body=data)
        mine.put_object(Bucket=bucket, Key="same", Body=data)
        whole = body(mine, bucket, "same")
        mine.close()
        return body(mine, bucket, f"c/{number:02}") == data and 40_000 <= len(whole) < 40_064

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(work, range(64)))
    listed = client(doors, key).list_objects_v2(Bucket=bucket, Prefix="c/")
    assert [each["Size"] for each in listed["Contents"]] == [40_000 + n for n in range(64)]
