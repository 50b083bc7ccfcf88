"""For all records of the operation log: what was written is read back, by this version and, as far
as an older one could write it, from that one's bytes."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.dfs.metadata import operations as op
from mrstream.dfs.oplog import decode_record, encode_record
from tests.support.examples import examples

KINDS: tuple[type[op.Record], ...] = get_args(op.OneRecord)
st.register_type_strategy(int, st.integers(-(1 << 63), (1 << 64) - 1))
st.register_type_strategy(float, st.floats(allow_nan=False))


@st.composite
def records(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(KINDS))
    hints = get_type_hints(kind)
    return kind(*(draw(st.from_type(hints[name])) for name in kind.__struct_fields__))


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(records())
def test_a_record_is_read_back_as_it_was_written(record: op.OneRecord) -> None:
    assert decode_record(encode_record(record)) == record
    assert op.parts_of(record) == (record,)


@settings(max_examples=examples(35), deadline=None, derandomize=True)
@given(st.lists(records(), min_size=2, max_size=5).map(tuple))
def test_records_together_are_read_back_in_order(parts: tuple[op.OneRecord, ...]) -> None:
    whole = op.Together(parts)

    assert decode_record(encode_record(whole)) == whole
    assert op.parts_of(whole) == parts


@settings(max_examples=examples(70), deadline=None, derandomize=True)
@given(records())
def test_a_record_without_its_later_fields_is_read_with_their_defaults(record: Any) -> None:
    """The rule of the format: a field is added at the end, with a default."""
    array = msgspec.msgpack.decode(encode_record(record))
    required = sum(1 for field in msgspec.structs.fields(record) if field.required)

    read = decode_record(msgspec.msgpack.encode(array[: 1 + required]))

    assert type(read) is type(record)
    names = record.__struct_fields__
    assert all(getattr(read, n) == getattr(record, n) for n in names[:required])
    defaults = {f.name: f.default for f in msgspec.structs.fields(record) if not f.required}
    assert all(getattr(read, n) == default for n, default in defaults.items())
