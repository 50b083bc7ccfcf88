"""A full disk behind the S3 door: `make soak`, since a gateway goes on trying for a while.

pytest tests/doors/full_disk.py
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.cluster.local import CHUNKSERVER, wait_for
from tests.doors.gateway_cluster import GatewayCluster
from tests.doors.s3_clients import MIB, client
from tests.doors.test_s3_objects import body, refused


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[Path]:
    """A directory for a cluster whose chunkservers have small disks."""
    places = [tmp_path / "hosts/test" / host / CHUNKSERVER for host in ("h1", "h2")]
    with contextlib.ExitStack() as mounted:
        for place in places:
            place.mkdir(parents=True)
            words = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
            subprocess.run(words, check=True)
            mounted.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
        yield tmp_path


def test_a_full_disk_is_told_to_come_later_and_leaves_nothing(small_disks: Path) -> None:
    """503 SlowDown: clients try again by themselves, and what was there stays."""
    dfs = {"chunk_size": "256KiB", "reserve": "1MiB", "replication": "1"}
    with GatewayCluster(small_disks, "{hosts: [h1]}", dfs=dfs) as doors:
        once = {"total_max_attempts": 1}
        s3 = client(doors, doors.key("all"), retries=once, read_timeout=600)
        s3.create_bucket(Bucket="data")
        s3.put_object(Bucket="data", Key="fits", Body=b"f" * MIB)
        id = s3.create_multipart_upload(Bucket="data", Key="parts")["UploadId"]
        part = {"Bucket": "data", "Key": "parts", "UploadId": id, "PartNumber": 1}

        too_large = b"t" * (60 * MIB)
        refused(503, "SlowDown", s3.put_object, Bucket="data", Key="fits", Body=too_large)
        refused(503, "SlowDown", s3.upload_part, Body=too_large, **part)

        assert body(s3, "data", "fits") == b"f" * MIB
        assert "Parts" not in s3.list_parts(Bucket="data", Key="parts", UploadId=id)

        def fits_again() -> bool:
            try:
                s3.put_object(Bucket="data", Key="later", Body=b"l" * (4 * MIB))
            except ClientError:
                return False
            return True

        wait_for(fits_again, 60.0, "the room of what was refused to return")
        assert body(s3, "data", "later") == b"l" * (4 * MIB)
