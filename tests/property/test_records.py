"""For all mixtures of records, padding, fragments and duplicates: each record comes out once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.dfs.client.records import MAGIC, RecordCutter, pack_record
from tests.support.examples import examples

PAYLOADS = st.binary(max_size=300) | st.just(MAGIC * 3) | st.just(pack_record(b"inner"))


@settings(max_examples=examples(100), deadline=None)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(["record", "record", "padding", "fragment", "duplicate"]), PAYLOADS
        ),
        max_size=20,
    ),
    cuts=st.integers(1, 97),
)
def test_records_survive_padding_fragments_and_duplicates(
    parts: list[tuple[str, bytes]], cuts: int
) -> None:
    """GFS §2.7.2 (GFS-32): the reader skips what is no record and drops what it has seen."""
    file = bytearray()
    expected: list[bytes] = []
    last = b""
    for number, (kind, payload) in enumerate(parts):
        record = pack_record(payload, bytes([7 + number]) * 16)
        if kind == "padding":
            file += bytes(len(payload))
        elif kind == "fragment":
            # A fragment never ends inside another record's bytes: the primary goes on behind it.
            file += record[: len(record) // 2] + b"\x55" * len(record)
        elif kind == "duplicate":
            file += last
        else:
            file += record
            expected.append(payload)
            last = record

    cutter = RecordCutter(1 << 16)
    found = []
    for at in range(0, len(file), cuts):
        found += list(cutter.feed(bytes(file[at : at + cuts])))
    found += list(cutter.finish())

    inner = [record for record in found if record.payload == b"inner" and b"inner" not in expected]
    assert [record.payload for record in found if record not in inner] == expected
    for record in found:
        size = len(pack_record(record.payload))
        whole = pack_record(record.payload, record.record_id)
        assert bytes(file[record.offset : record.offset + size]) == whole
