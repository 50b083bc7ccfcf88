"""Files through a gateway's S3 port beside `mrstream dfs` and the dfs client.

One host, one replica, everything on this machine. The commands' start-up is in their times, which
flatters HTTP; TLS and an MD5 of every byte are in HTTP's.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from mrstream.cluster.config.config import GATEWAY, GATEWAY_S3
from mrstream.dfs.client.client import client_of
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import create
from tests.benchmarks.bench_doors import Door, one_gateway
from tests.benchmarks.common import MRSTREAM, Row, Run, interleaved, run, workplace
from tests.cluster.local import CHUNKSERVER

CLIENTS = 60
"""An address may have 64 connections, and boto3 has some too."""
SMALL_BYTES = 4096
KEYS = 100_000
PART_BYTES = 8 << 20
PARTS = 1280
"""10 GiB. The parts share one chunk, so that a small disk will do: the master does not care."""


class S3Door:
    """The S3 port of a gateway, by curl and by boto3."""

    def __init__(self, door: Door) -> None:
        self.door = door
        port = door.cluster.config.port(GATEWAY_S3)
        scheme = "https" if door.words == "TLS" else "http"
        self.url = f"{scheme}://127.0.0.1:{port}"
        at = door.curl.index("-u") + 1
        id, _, secret = door.curl[at].partition(":")
        self.curl = [
            *door.curl, "--aws-sigv4", "aws:amz:any:s3", "-H",
            "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        ]  # fmt: skip
        self.authority = door.curl[door.curl.index("--cacert") + 1]
        self.boto = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=id,
            aws_secret_access_key=secret,
            region_name="any",
            verify=self.authority,
            config=Config(proxies={}, max_pool_connections=CLIENTS),
        )


def bench(size_bytes: int = 256 << 20, repeats: int = 3) -> list[Row]:
    """Give the rows of the table."""
    rows: list[Row] = []
    with workplace() as place:
        source = place / "source"
        with open(source, "wb") as file:
            for _ in range(size_bytes >> 20):
                file.write(os.urandom(1 << 20))
        for tls in (False, True):
            with one_gateway(place, tls) as door:
                s3 = S3Door(door)
                s3.boto.create_bucket(Bucket="bench")
                rows += _one_client(s3, place, source, size_bytes, repeats)
                rows += _small(s3)
                if not tls:
                    rows.append(_listing(s3))
                    rows.append(_complete(s3))
    return rows


def _one_client(s3: S3Door, place: Path, source: Path, size_bytes: int, repeats: int) -> list[Row]:
    def command(*words: str) -> Callable[[], Run]:
        return lambda: run([MRSTREAM, "dfs", *words], place, s3.door.cluster.environment)

    def curl(*words: str) -> Callable[[], Run]:
        return lambda: run([*s3.curl, *words], place)

    found = interleaved(
        {
            "put": command("-put", "-f", str(source), "/bench/by-command"),
            "PUT": curl("-T", str(source), f"{s3.url}/bench/by-s3"),
            "get": command("-get", "-f", "/bench/by-command", str(place / "got")),
            "GET": curl("-o", str(place / "fetched"), f"{s3.url}/bench/by-s3"),
        },
        repeats,
    )
    assert (place / "fetched").stat().st_size == size_bytes
    rates = {name: size_bytes / 1e6 / each.wall_s for name, each in found.items()}
    size = f"{size_bytes >> 20} MiB, {s3.door.words}"
    return [
        Row(f"S3 GET {size}, beside -get", rates["GET"], rates["get"], "MB/s", "≥ 0.7"),
        Row(f"S3 PUT {size}, beside -put", rates["PUT"], rates["put"], "MB/s", "≥ 0.7"),
    ]


class Plain(threading.local):
    """A connection for each thread, on which as little as possible is done besides HTTP: what is
    measured is the gateway."""

    def __init__(self, s3: S3Door) -> None:
        place = urlsplit(s3.url)
        if place.scheme == "https":
            context = ssl.create_default_context(cafile=s3.authority)
            self.http = http.client.HTTPSConnection(place.netloc, context=context)
        else:
            self.http = http.client.HTTPConnection(place.netloc)

    def ask(self, method: str, url: str, data: bytes | None = None) -> bytes:
        """Send a request that was signed before; return the body of its answer."""
        place = urlsplit(url)
        self.http.request(method, f"{place.path}?{place.query}", data)
        answer = self.http.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body


def _rate(work: Callable[[int], object], count: int) -> float:
    """How many a second, by 60 threads."""
    began_s = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, range(count)))
    return count / (time.monotonic() - began_s)


def _small(s3: S3Door, count: int = 1000) -> list[Row]:
    """4 KiB objects by 60 connections, beside 60 threads of one dfs client."""
    data = os.urandom(SMALL_BYTES)
    dfs = client_of(s3.door.cluster.cluster)
    plain = Plain(s3)
    links = {
        operation: [
            s3.boto.generate_presigned_url(
                operation, Params={"Bucket": "bench", "Key": f"small/{number}"}
            )
            for number in range(count)
        ]
        for operation in ("put_object", "get_object")
    }

    def write(number: int) -> None:
        with create(dfs, f"/bench/own/{number}", overwrite=True) as file:
            file.write(data)

    def read(number: int) -> None:
        with DfsReader(dfs, f"/bench/own/{number}") as file:
            file.read()

    puts = _rate(lambda number: plain.ask("PUT", links["put_object"][number], data), count)
    writes = _rate(write, count)
    gets = _rate(lambda number: plain.ask("GET", links["get_object"][number]), count)
    reads = _rate(read, count)
    dfs.close()
    words = f"4 KiB, 60 connections, {s3.door.words}, beside 60 threads of a dfs client"
    return [
        Row(f"S3 PUT of {words}", puts, writes, "/s", "≥ 0.6"),
        Row(f"S3 GET of {words}", gets, reads, "/s", "≥ 0.5"),
    ]


def _listing(s3: S3Door) -> Row:
    """100,000 keys in pages of 1000, beside the dfs client's own walk of the same tree."""
    dfs = client_of(s3.door.cluster.cluster)
    dfs.make_directory("/bench/list")
    dfs.snapshot("/bench/small", "/bench/list/000")
    for number in range(1, KEYS // 1000):
        dfs.snapshot("/bench/list/000", f"/bench/list/{number:03}")
    plain, keys, more = Plain(s3), 0, {}
    began_s = time.monotonic()
    while True:
        asked = {"Bucket": "bench", "Prefix": "list/", **more}
        page = plain.ask("GET", s3.boto.generate_presigned_url("list_objects_v2", Params=asked))
        keys += page.count(b"<Contents>")
        token = re.search(b"<NextContinuationToken>(.*)</NextContinuationToken>", page)
        if token is None:
            break
        more = {"ContinuationToken": token[1].decode()}
    listed_s = time.monotonic() - began_s
    began_s = time.monotonic()
    walked = sum(not each.is_directory for each in dfs.find("/bench/list"))
    walked_s = time.monotonic() - began_s
    assert keys == walked == KEYS
    dfs.delete("/bench/list", recursive=True, skip_trash=True)
    dfs.close()
    what = "LIST of 100,000 keys in pages of 1000, beside the dfs client's walk"
    return Row(what, keys / listed_s, walked / walked_s, "keys/s", "≥ 0.3")


def _complete(s3: S3Door) -> Row:
    """Complete of 10 GiB in parts of 8 MiB: how long, and what is read for it."""
    dfs = client_of(s3.door.cluster.cluster)
    named = {"Bucket": "bench", "Key": "ten-gib"}
    id = s3.boto.create_multipart_upload(**named)["UploadId"]
    etag = s3.boto.upload_part(UploadId=id, PartNumber=1, Body=bytes(PART_BYTES), **named)["ETag"]
    home = f"/bench/.mrstream-uploads/{id}"
    for number in range(2, PARTS + 1):
        dfs.snapshot(f"{home}/00001", f"{home}/{number:05}")
    parts = [{"PartNumber": n, "ETag": etag} for n in range(1, PARTS + 1)]
    before = _bytes_read(s3)
    began_s = time.monotonic()
    s3.boto.complete_multipart_upload(UploadId=id, MultipartUpload={"Parts": parts}, **named)
    took_s = time.monotonic() - began_s
    read = _bytes_read(s3) - before
    size = s3.boto.head_object(**named)["ContentLength"]
    assert size == PARTS * PART_BYTES and read < 4 << 20, f"{read} bytes were read"
    dfs.delete("/bench/ten-gib", skip_trash=True)
    dfs.close()
    what = f"Complete of 10 GiB in 1280 parts, beside a second ({read >> 10} KiB read, all lists)"
    return Row(what, took_s, 1.0, "s", "≤ 1")


def _bytes_read(s3: S3Door) -> int:
    """Whatever the gateway and the chunkserver have read, from files and from sockets."""
    total = 0
    for role in (GATEWAY, CHUNKSERVER):
        pid = s3.door.cluster.pid(role, "h1")
        fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        total += int(fields["rchar"])
    return total


if __name__ == "__main__":
    for found_row in bench(int(sys.argv[1]) << 20 if len(sys.argv) > 1 else 256 << 20):
        print(found_row)
