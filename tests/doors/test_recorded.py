"""What peers said to a gateway once, said again: Hadoop's contract tests, rclone, DuckDB, s3a.

`make interop` runs the peers themselves; their requests lie in recorded/, written down by
recording.py. Each is signed anew and sent in its order; the answer has the status, headers and
shape that the peer went on with.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from mrstream.cluster.config.config import GATEWAY_S3
from mrstream.web.s3.checksums import MAKERS
from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.recording import body_of, names_in, read, shape
from tests.doors.s3_clients import endpoint, signed_stream

Sent = tuple[str, dict[str, str], bytes]
_NAME = re.compile(r"[A-Za-z0-9_-]{32,}(?:%3D|=){0,2}")
"""ETags, ids of uploads, tokens of lists."""


class Again:
    """A connection by which a recording is said again, and what is called otherwise this time."""

    def __init__(self, doors: GatewayCluster, port: int) -> None:
        context = ssl.create_default_context(cafile=doors.authority)
        address = doors.config.host("h1").address
        self._connection = http.client.HTTPSConnection(address, port, timeout=60, context=context)
        self.names: dict[str, str] = {}
        self._vague: set[str] = set()

    def renamed(self, text: str) -> str:
        """With the names that things have this time."""
        return _NAME.sub(lambda found: self.names.get(found[0], found[0]), text)

    def say(self, found: dict[str, Any], made: Callable[[str, bytes], Sent]) -> str:
        """Send one request; return what is wrong with the answer, nothing if all is well."""
        data = body_of(found)
        if data[:1] == b"<":
            data = self.renamed(data.decode()).encode()
        target, headers, data = made(self.renamed(found["target"]), data)
        self._connection.putrequest(
            found["method"], target, skip_host=True, skip_accept_encoding=True
        )
        for name, value in headers.items():
            self._connection.putheader(name, value)
        self._connection.endheaders(data)
        answer = self._connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return self._judged(found, answer.status, told, answer.read())

    def _judged(self, found: dict[str, Any], status: int, told: dict[str, str], data: bytes) -> str:
        self._is_vague(found)
        if status != found["status"]:
            return f"status {status} instead of {found['status']}: {data[:300]!r}"
        if found.get("location") and "location" not in told:
            return "no Location"
        names = names_in(data, told)
        if len(names) != len(found["names"]):
            return f"names {names} instead of {found['names']}"
        for old, new in zip(found["names"], names, strict=True):
            self.names.update({old: new, quote(old): quote(new)})
        for name, value in found["tells"].items():
            if name != "etag" and told.get(name) != value:
                return f"{name}: {told.get(name)} instead of {value}"
            if name == "etag" and name not in told:
                return "no ETag"
        seen, wanted = shape(data, told.get("content-type", ""), exact=True), found["shape"]
        if _are_bytes(wanted) and _are_bytes(seen) and self._is_vague(found):
            seen, wanted = seen[:1], wanted[:1]
        return "" if seen == wanted else f"{seen} instead of {wanted}"

    def _is_vague(self, found: dict[str, Any]) -> bool:
        """Is this about a file whose bytes were too many to keep, so that it has others here?"""
        path = found["target"].partition("?")[0]
        source = "/" + found["headers"].get("x-amz-copy-source", "").lstrip("/")
        if "length" in found or source in self._vague:
            self._vague.add(path)
        return path in self._vague

    def close(self) -> None:
        """No more."""
        self._connection.close()


def _are_bytes(found: Any) -> bool:
    return isinstance(found, list) and isinstance(found[0], int)


def _say_all(again: Again, peer: str, made: Callable[[dict[str, Any]], Any]) -> None:
    wrong, entries = [], read(peer)
    for number, found in enumerate(entries):
        words = again.say(found, made(found))
        if words:
            wrong.append(f"{number} {found['method']} {found['target']}: {words}")
    again.close()
    assert not wrong, f"{len(wrong)} of {len(entries)}:\n" + "\n".join(wrong[:10])


@pytest.mark.parametrize("peer", ["duckdb", "rclone", "s3a"])
def test_what_object_store_clients_said(doors: GatewayCluster, peer: str) -> None:
    """With a key that sees no bucket of other tests."""
    bucket = f"recorded-{peer}"
    key = doors.key(bucket, "--user", "ann", "--path", f"/{bucket}")
    host = endpoint(doors).removeprefix("https://")
    again = Again(doors, doors.config.port(GATEWAY_S3))

    def made(found: dict[str, Any]) -> Callable[[str, bytes], Sent]:
        def signed(target: str, data: bytes) -> Sent:
            target = re.sub(r"^/data(?=[/?]|$)", f"/{bucket}", target)
            headers = {"host": host, **found["headers"]}
            if "x-amz-copy-source" in headers:
                source = headers["x-amz-copy-source"]
                headers["x-amz-copy-source"] = re.sub(r"^/?data/", f"{bucket}/", source)
            for name, value in headers.items():
                if name in ("if-match", "if-none-match", "x-amz-copy-source-if-match"):
                    headers[name] = again.renamed(value)
            return _signed(key, found["method"], host, target, headers, data, found["payload"])

        return signed

    _say_all(again, peer, made)


def _signed(
    key: Secret, method: str, host: str, target: str, headers: dict[str, str], data: bytes,
    payload: str,
) -> Sent:  # fmt: skip
    """A request as the peer would sign it now."""
    if "content-md5" in headers:
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        headers["content-md5"] = base64.b64encode(digest).decode()
    for name in headers:
        algorithm = name.removeprefix("x-amz-checksum-")
        if name.startswith("x-amz-checksum-") and algorithm in MAKERS:
            headers[name] = _sum(algorithm, data)
    kind = hashlib.sha256(data).hexdigest() if payload == "SIGNED" else payload
    headers["x-amz-content-sha256"] = kind
    if payload.startswith("STREAMING"):
        headers["x-amz-decoded-content-length"] = str(len(data))

    class Signer(S3SigV4Auth):  # type: ignore[misc]
        def payload(self, request: Any) -> str:
            return kind

    request = AWSRequest(method, f"https://{host}{target}", headers=headers)
    Signer(Credentials(key.id, key.secret), "s3", "us-east-1").add_auth(request)
    if payload.startswith("STREAMING"):
        trailer = headers.get("x-amz-trailer", "")
        if trailer:
            trailer = f"{trailer}:{_sum(trailer.removeprefix('x-amz-checksum-'), data)}"
        pieces = [data[at : at + 65_536] for at in range(0, len(data), 65_536)]
        is_signed = payload != "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        data = signed_stream(key if is_signed else None, request.headers, pieces, trailer)
    ready = dict(request.headers)
    if data or method in ("PUT", "POST"):
        ready["content-length"] = str(len(data))
    return target, ready, data


def _sum(algorithm: str, data: bytes) -> str:
    made = MAKERS[algorithm]()
    made.update(data)
    return base64.b64encode(made.digest()).decode()


def test_what_hadoop_said(doors: GatewayCluster) -> None:
    """Below a directory of its own, with a key where Hadoop's client is believed by its network."""
    root = "/recorded-hadoop"
    key = doors.key("recorded", "--user", "root", "--path", root)
    doors.mrstream("dfs", "-mkdir", root)
    proof = "Basic " + base64.b64encode(f"{key.id}:{key.secret}".encode()).decode()
    host = doors.base().removeprefix("https://")
    again = Again(doors, doors.port())

    def made(found: dict[str, Any]) -> Callable[[str, bytes], Sent]:
        def proven(target: str, data: bytes) -> Sent:
            target = target.replace("/webhdfs/v1/", f"/webhdfs/v1{root}/", 1)
            target = re.sub(r"[?&]user\.name=[^&]*", lambda seen: seen[0][0], target)
            target = re.sub(r"(destination|sources)=([^&]*)", _moved(root), target)
            headers = {"host": host, "authorization": proof, **found["headers"]}
            if data or found["method"] in ("PUT", "POST"):
                headers["content-length"] = str(len(data))
            return target, headers, data

        return proven

    _say_all(again, "hadoop", made)


def _moved(root: str) -> Callable[[re.Match[str]], str]:
    """Paths in a query, below another directory."""

    def moved(found: re.Match[str]) -> str:
        paths = re.split("(,|%2C)", found[2])
        shown = [path if path in ("", ",", "%2C") else f"{root}{path}" for path in paths]
        return f"{found[1]}={''.join(shown)}"

    return moved
