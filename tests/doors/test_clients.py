"""Clients that other people wrote: curl, PyPI's `hdfs`, fsspec (doors §4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import hdfs
import pytest
import requests

from tests.doors.gateway_cluster import GatewayCluster, Secret


def test_curl_stores_and_fetches_in_one_step(
    doors: GatewayCluster, key: Secret, place: str, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 12_000
    (tmp_path / "in").write_bytes(data)
    url = doors.url(f"{place}/f")

    stored = doors.curl(key, "-f", "-T", str(tmp_path / "in"), f"{url}?op=CREATE")
    piped = doors.curl(key, "-f", "-T", "-", f"{url}2?op=CREATE", data=data)
    fetched = doors.curl(key, "-f", f"{url}?op=OPEN")

    assert (stored.returncode, piped.returncode) == (0, 0), stored.stderr + piped.stderr
    assert fetched.stdout == data
    assert doors.curl(key, "-f", f"{url}2?op=OPEN").stdout == data
    part = doors.curl(key, "-f", "-r", "1000-1999", f"{url}?op=OPEN")
    assert part.stdout == data[1000:2000]


def test_curl_follows_the_two_steps_of_the_manual(
    doors: GatewayCluster, key: Secret, place: str, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(b"two steps")
    url = doors.url(f"{place}/f?op=CREATE")

    first = doors.curl(key, "-i", "-X", "PUT", url).stdout.decode()
    location = next(
        line.split(": ", 1)[1] for line in first.splitlines() if line.startswith("Location:")
    )
    second = doors.curl(key, "-i", "-X", "PUT", "-T", str(tmp_path / "in"), location.strip())
    followed = doors.curl(
        key, "-f", "-L", "-X", "POST", "-d", " and more", doors.url(f"{place}/f?op=APPEND")
    )

    assert " 307 " in first.splitlines()[0]
    assert b" 201 " in second.stdout
    assert followed.returncode == 0
    assert doors.curl(key, doors.url(f"{place}/f?op=OPEN")).stdout == b"two steps and more"


def test_a_refused_upload_of_curl_sends_no_body(
    doors: GatewayCluster, key: Secret, place: str, tmp_path: Path
) -> None:
    """§1.2: `Expect: 100-continue` is answered after the checks."""
    (tmp_path / "in").write_bytes(bytes(64 << 20))
    doors.curl(key, "-T", "-", doors.url(f"{place}/f?op=CREATE"), data=b"first")

    refused = doors.curl(
        key, "-H", "Expect: 100-continue", "-w", "\n%{http_code} %{size_upload}",
        "-T", str(tmp_path / "in"), doors.url(f"{place}/f?op=CREATE"),
    )  # fmt: skip

    assert refused.stdout.splitlines()[-1] == b"403 0"


@pytest.fixture
def client(doors: GatewayCluster, session: requests.Session) -> hdfs.Client:
    return hdfs.Client(doors.base(), session=session)


def test_the_python_client_does_all_it_can(client: hdfs.Client, place: str, tmp_path: Path) -> None:
    client.makedirs(place, permission=755)
    client.write(f"{place}/f", data="héllo\n", encoding="utf-8")
    client.write(f"{place}/f", data=b"more", append=True)
    with client.write(f"{place}/g", overwrite=True) as writer:
        for number in range(5):
            writer.write(b"%d" % number * 100_000)

    with client.read(f"{place}/f", encoding="utf-8") as reader:
        assert reader.read() == "héllo\nmore"
    with client.read(f"{place}/g", offset=100_000, length=3) as reader:
        assert reader.read() == b"111"
    assert client.list(place) == ["f", "g"]
    assert client.status(f"{place}/f")["length"] == 11
    assert client.status(f"{place}/none", strict=False) is None
    assert client.content(place)["fileCount"] == 2
    assert client.checksum(f"{place}/g")["algorithm"] == "COMPOSITE-CRC32C"
    client.set_permission(f"{place}/f", "600")
    client.set_times(f"{place}/f", access_time=-1, modification_time=1000)
    client.set_replication(f"{place}/f", 1)
    assert client.acl_status(f"{place}/f")["permission"] == "600"
    client.rename(f"{place}/f", f"{place}/h")
    assert [path for path, _, _ in client.walk(place)] == [place]
    assert client.delete(f"{place}/h") and not client.delete(f"{place}/h")
    (tmp_path / "up").mkdir()
    for number in range(3):
        (tmp_path / "up" / f"{number}").write_bytes(bytes([number]) * 1000)
    client.upload(f"{place}/up", str(tmp_path / "up"), n_threads=2)
    client.download(f"{place}/up", str(tmp_path / "down"), n_threads=2)
    for number in range(3):
        assert (tmp_path / "down" / f"{number}").read_bytes() == bytes([number]) * 1000
    with pytest.raises(hdfs.HdfsError, match="does not exist"):
        client.status(f"{place}/none")


def test_the_python_client_carries_tokens(
    doors: GatewayCluster, session: requests.Session, place: str
) -> None:
    answer = session.get(doors.url("/?op=GETDELEGATIONTOKEN"))
    token = answer.json()["Token"]["urlString"]
    client = hdfs.TokenClient(doors.base(), token, session=doors.session(None))

    client.write(f"{place}/f", data=b"by token")

    with client.read(f"{place}/f") as reader:
        assert reader.read() == b"by token"
    assert client.status(f"{place}/f")["owner"] == "ann"


@pytest.fixture
def webhdfs(doors: GatewayCluster, key: Secret, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", doors.authority)
    return fsspec.filesystem(
        "webhdfs",
        host="127.0.0.1",
        port=doors.port(),
        user=key.id,
        password=key.secret,
        use_https=True,
        session_verify=doors.authority,
        skip_instance_cache=True,
    )


def test_fsspec_reads_writes_and_lists(webhdfs: Any, place: str, tmp_path: Path) -> None:
    webhdfs.mkdir(place)
    data = bytes(range(256)) * 5_000
    with webhdfs.open(f"{place}/f", "wb") as file:
        file.write(data)
    webhdfs.pipe_file(f"{place}/g", b"0123456789")

    assert webhdfs.cat_file(f"{place}/f") == data
    with webhdfs.open(f"{place}/f", "rb") as file:
        file.seek(-10, 2)
        assert file.read() == data[-10:]
    assert webhdfs.cat_file(f"{place}/g", 3, 6) == b"345"
    assert [entry["name"] for entry in webhdfs.ls(place, detail=True)] == [
        f"{place}/f", f"{place}/g",
    ]  # fmt: skip
    assert webhdfs.info(f"{place}/g")["size"] == 10
    assert webhdfs.find(place) == [f"{place}/f", f"{place}/g"]
    assert webhdfs.glob(f"{place}/*") == [f"{place}/f", f"{place}/g"]
    webhdfs.mv(f"{place}/g", f"{place}/h")
    webhdfs.cp_file(f"{place}/h", f"{place}/i")
    webhdfs.get(f"{place}/i", str(tmp_path / "i"))
    assert (tmp_path / "i").read_bytes() == b"0123456789"
    webhdfs.rm(place, recursive=True)
    assert not webhdfs.exists(place)
