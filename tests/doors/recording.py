"""What passes between a peer and a gateway, written down: requests as they came, answers as shapes.

`Recorder` stands between the two while `make interop --record` runs. What it writes is made smaller
by `kept` and lies in `recorded/`; test_recorded.py says it all again to a gateway of its own.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.server
import json
import re
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

HERE: Final = Path(__file__).parent / "recorded"
BODY_BYTES_MAX: Final = 4096
"""Longer bodies are told by their length, unless they pack to this."""
DROPPED: Final = frozenset(
    {"host", "authorization", "connection", "user-agent", "accept-encoding", "expect", "te"}
    | {"x-amz-date", "x-amz-content-sha256", "content-length", "transfer-encoding", "date"}
    | {"amz-sdk-invocation-id", "amz-sdk-request", "x-amz-te", "referer", "cache-control", "pragma"}
)
"""Of requests: what says only who asks, or is made anew."""
TOLD: Final = ("content-type", "content-range", "accept-ranges", "etag", "x-amz-mp-parts-count")
"""Of answers: what peers lean on."""
VOLATILE: Final = frozenset(
    {"accessTime", "modificationTime", "fileId", "message", "urlString", "LastModified", "UploadId"}
    | {"RequestId", "HostId", "Message", "Resource", "CreationDate", "Initiated", "Location"}
    | {"NextContinuationToken", "ContinuationToken", "ID", "DisplayName", "ETag", "capacity"}
    | {"used", "remaining", "hosts", "names", "topologyPaths", "owner", "bytes", "Name", "Bucket"}
)
"""Values that are others each time; that they are there is compared."""


class Recorder:
    """Passes requests on to a gateway at this port, and keeps what was said."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.entries: list[dict[str, Any]] = []
        lock = threading.Lock()
        entries = self.entries

        class Passing(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self._body()
                with_host = http.client.HTTPConnection(*address, timeout=120)
                with_host.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    if name.lower() not in ("expect", "transfer-encoding", "connection"):
                        with_host.putheader(name, value)
                if self.headers.get("transfer-encoding") and "content-length" not in self.headers:
                    with_host.putheader("Content-Length", str(len(body)))
                with_host.endheaders(body)
                answer = with_host.getresponse()
                data = answer.read()
                with_host.close()
                with lock:
                    entries.append(entry(self.command, self.path, self.headers.items(), body,
                                         answer.status, answer.getheaders(), data))  # fmt: skip
                self.send_response_only(answer.status)
                length = answer.getheader("content-length") or str(len(data))
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_OPTIONS = _pass_on

            def _body(self) -> bytes:
                if "content-length" in self.headers:
                    return self.rfile.read(int(self.headers["content-length"]))
                if "chunked" not in self.headers.get("transfer-encoding", ""):
                    return b""
                pieces = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return b"".join(pieces)

            def log_message(self, *_: Any) -> None:
                """Nobody looks."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def write(self, name: str, reset: str = "") -> None:
        """Keep it; after a request that matches `reset` everything is as at the beginning."""
        write(name, chosen(list(kept(self.entries)), reset), len(self.entries))


def write(name: str, entries: list[dict[str, Any]], of: int) -> None:
    """Keep what was recorded of a peer, packed, one request a line."""
    lines = [json.dumps(each, separators=(",", ":")) for each in entries]
    data = zlib.compress("\n".join(lines).encode(), 9)
    (HERE / f"{name}.z").write_bytes(data)
    print(f"{name}: {len(lines)} of {of} requests, {len(data)} bytes")


def read(name: str) -> list[dict[str, Any]]:
    """What was recorded of a peer."""
    text = zlib.decompress((HERE / f"{name}.z").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def entry(
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    status: int,
    told: Iterable[tuple[str, str]],
    data: bytes,
) -> dict[str, Any]:
    """One request and its answer."""
    sent = {name.lower(): value for name, value in headers}
    payload = sent.get("x-amz-content-sha256", "")
    body = plain_body(body, payload)
    found: dict[str, Any] = {
        "method": method,
        "target": target,
        "headers": {name: value for name, value in sent.items() if name not in DROPPED},
        "status": status,
    }
    if payload:
        found["payload"] = payload if payload.startswith(("STREAM", "UNSIGN")) else "SIGNED"
    found.update(packed_body(body))
    answered = {name.lower(): value for name, value in told}
    if "location" in answered and status in (301, 302, 307):
        found["location"] = True
    found["tells"] = {name: answered[name] for name in TOLD if name in answered}
    found["shape"] = shape(data, answered.get("content-type", ""), exact=True)
    found["names"] = names_in(data, answered)
    return found


def plain_body(body: bytes, payload: str) -> bytes:
    """An object's own bytes, without the frames of a stream that is signed in pieces."""
    if not payload.startswith("STREAMING"):
        return body
    pieces: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def packed_body(body: bytes) -> dict[str, Any]:
    """A body as it is kept: as text, packed, or by its length alone."""
    if not body:
        return {}
    small = zlib.compress(body, 9)
    if len(small) <= BODY_BYTES_MAX:
        return {"body": base64.b64encode(small).decode()}
    return {"length": len(body)}


def body_of(found: dict[str, Any]) -> bytes:
    """The body to send: as it was, or as long as it was."""
    if "body" in found:
        return zlib.decompress(base64.b64decode(found["body"]))
    length = int(found.get("length", 0))
    seed = hashlib.sha256(str(length).encode()).digest()
    return (seed * (length // 32 + 1))[:length]


def names_in(data: bytes, headers: dict[str, str]) -> list[str]:
    """Names that an answer gives to things and that later requests say again, in order."""
    found = [headers["etag"].strip('"')] if "etag" in headers else []
    if data[:1] == b"<":
        root = ElementTree.fromstring(data)
        for each in root.iter():
            tag = each.tag.rpartition("}")[2]
            if tag in ("UploadId", "ETag", "NextContinuationToken") and each.text:
                found.append(each.text.strip('"'))
    return found


def shape(data: bytes, kind: str, *, exact: bool) -> Any:
    """An answer without what is another each time; of bytes their length and, if they are known
    to be the same (`exact`), their digest."""
    if not data:
        return None
    if kind.startswith("application/json"):
        return _json_shape(json.loads(data))
    if data[:5] == b"<?xml":
        return _xml_shape(ElementTree.fromstring(data))
    digest = hashlib.sha256(data).hexdigest()[:16] if exact else ""
    return [len(data), digest]


def _json_shape(value: Any, name: str = "") -> Any:
    if name in VOLATILE:
        return "…"
    if isinstance(value, dict):
        return {key: _json_shape(each, key) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [_json_shape(each) for each in value]
    return value


def _xml_shape(found: ElementTree.Element) -> Any:
    name = found.tag.rpartition("}")[2]
    if len(found):
        return [name, *(_xml_shape(each) for each in found)]
    return [name, "…" if name in VOLATILE else (found.text or "")]


def kept(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All that changes something, and of what only reads each kind of question and answer once."""
    seen: set[str] = set()
    for each in entries:
        if each["method"] in ("GET", "HEAD") and not each["names"]:
            kind = _kind(each)
            if kind in seen:
                continue
            seen.add(kind)
        yield each


def chosen(entries: list[dict[str, Any]], reset: str) -> list[dict[str, Any]]:
    """Of the stretches between resets, those in which something is said that was not before."""
    if not reset:
        return entries
    stretches: list[list[dict[str, Any]]] = [[]]
    for each in entries:
        stretches[-1].append(each)
        if re.search(reset, f"{each['method']} {each['target']}"):
            stretches.append([])
    seen: set[str] = set()
    found = []
    for stretch in stretches:
        kinds = {_kind(each) for each in stretch}
        if not kinds <= seen:
            seen |= kinds
            found += stretch
    return found


def _kind(found: dict[str, Any]) -> str:
    words = urlsplit(found["target"])
    query = sorted(name for name, _ in parse_qsl(words.query, keep_blank_values=True))
    operation = re.search(r"op=(\w+)", words.query)
    return json.dumps(
        [found["method"], query, operation and operation[0], found["status"],
         _skeleton(found["shape"]), sorted(found["tells"])]
    )  # fmt: skip


def _skeleton(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(value)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [value[0], sorted({str(_skeleton(each)) for each in value[1:]})]
    return type(value).__name__
