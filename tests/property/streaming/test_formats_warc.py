"""For all WARC files and all split sizes: every record exactly once, as warcio reads it."""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.warcwriter import WARCWriter

from mrstream.cluster.errors import Corrupt
from tests.support import row_files

# A payload may hold what looks like the start of a record, plain or packed.
_INNER = b"\r\n\r\nWARC/1.0\r\nContent-Length: 0\r\n\r\n"
_payloads = st.lists(
    st.sampled_from([b"text ", b"\r\n", b"WARC/1.0\r\n", b"\x1f\x8b\x08", b"\0", b"\xff" * 9]),
    max_size=6,
).map(b"".join)


def write(path: Path, payloads: list[bytes]) -> None:
    with open(path, "wb") as out:
        writer = WARCWriter(out, gzip=path.suffix == ".gz")
        for number, payload in enumerate(payloads):
            record = writer.create_warc_record(
                f"http://host/{number}", "resource", payload=io.BytesIO(payload)
            )
            writer.write_record(record)


def straight(path: Path) -> list[tuple[str, bytes]]:
    with open(path, "rb") as file:
        return [
            (record.rec_headers.get_header("WARC-Target-URI"), record.raw_stream.read())
            for record in ArchiveIterator(file)
        ]


def read(path: Path, cuts: list[float], conf: dict[str, str] | None = None) -> list[Any]:
    found = []
    for line in b"".join(row_files.read_pieces(path, "WARC", cuts, conf)).splitlines():
        uri, _, value = line.partition(b"\t")
        headers, _, payload = base64.b64decode(value).partition(b"\r\n\r\n")
        assert headers.startswith(b"WARC/1.0\r\n")
        found.append((uri.decode(), payload))
    return found


@settings(max_examples=120, deadline=None)
@given(st.lists(_payloads, max_size=8), st.sampled_from(["f.warc", "f.warc.gz"]), row_files.borders)
def test_every_record_is_in_exactly_one_split(
    payloads: list[bytes], name: str, cuts: list[float]
) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / name
        write(path, payloads)

        try:
            assert read(path, cuts) == straight(path)
        except Corrupt as error:
            assert "mrstream.input.borders=exact" in str(error)
        assert read(path, cuts, {"mrstream.input.borders": "exact"}) == straight(path)


def test_an_archive_inside_an_archive_is_found_out(tmp_path: Path) -> None:
    """The border lies in a payload that holds a record: the map before knows better."""
    write(tmp_path / "f.warc", [b"a" * 50, b"b" * 2000 + _INNER + b"c" * 2000, b"d"])

    with pytest.raises(Corrupt, match=r"mrstream\.input\.borders=exact"):
        read(tmp_path / "f.warc", [0.3])
    exact = read(tmp_path / "f.warc", [0.3], {"mrstream.input.borders": "exact"})
    assert exact == straight(tmp_path / "f.warc")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["damaged.warc", "damaged.warc.gz"]), st.data())
def test_a_damaged_file_is_one_line_or_records(name: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / name
        write(path, [b"payload %d" % n for n in range(5)])
        good = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            at = int(data.draw(st.floats(0, 0.999)) * len(good))
            good[at] = data.draw(st.integers(0, 255))
        cut = int(data.draw(st.floats(0, 1)) * len(good))
        path.write_bytes(good[:cut] if data.draw(st.booleans()) else good)
        try:
            row_files.read_pieces(path, "WARC", [0.5])
        except Corrupt as error:
            assert "\n" not in str(error) and "damaged" in str(error)
