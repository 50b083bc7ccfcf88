"""For all tables and all split sizes: every row is in exactly one split, as pyarrow reads it."""

from __future__ import annotations

import base64
import datetime
import json
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.streaming.formats.row_filter import parse_filter
from tests.support import row_files

_text = st.text(st.characters(codec="utf-8"), max_size=8)
_moments = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
_columns: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), _text),
    (pa.large_string(), st.text("ab\"\\\t\n\0é")),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", 'b"', "é"])),
    (pa.binary(), st.binary(max_size=6)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), _moments),
    (pa.timestamp("ms", "UTC"), _moments.map(lambda m: m.replace(microsecond=1000))),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    (pa.list_(pa.int64()), st.lists(st.integers(-9, 9), max_size=3)),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), st.fixed_dictionaries(
        {"a": st.none() | st.integers(-9, 9), "b": st.none() | _text})),
    (pa.null(), st.none()),
]  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """A table of a few columns of any type, nulls among the values."""
    rows = draw(st.integers(0, 30))
    chosen = draw(st.lists(st.sampled_from(_columns), min_size=1, max_size=4))
    names = draw(st.lists(_text.filter(bool), min_size=4, max_size=4, unique=True))
    arrays = [
        pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind)
        for kind, values in chosen
    ]
    return pa.Table.from_arrays(arrays, names=names[: len(arrays)])


def as_json(value: Any) -> Any:
    """What a value of pyarrow's is in JSON: the oracle, one value at a time."""
    match value:
        case float():
            return value if value == value and abs(value) != float("inf") else None
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [as_json(one) for one in value]
        case dict():
            return {name: as_json(one) for name, one in value.items()}
        case datetime.datetime():
            return value.replace(tzinfo=None)
        case datetime.date():
            return value.isoformat()
        case None | bool() | int() | str():
            return value
    return str(value)


def straight(table: Any) -> list[dict[str, Any]]:
    """The rows as pyarrow gives them."""
    return [as_json(row) for row in table.to_pylist()]


def same(ours: Sequence[Any], table: Any) -> bool:
    """Compare; a moment is compared as one, however many zeros its fraction is written with, and a
    float of 32 bits as one, whatever the digits behind those that it needs."""
    theirs = straight(table)
    for mine, row in zip(ours, theirs, strict=True):
        for name, value in row.items():
            if table.schema.field(name).type == pa.float32() and mine[name] is not None:
                mine[name] = struct.unpack("<f", struct.pack("<f", mine[name]))[0]
            if isinstance(value, datetime.datetime) and isinstance(mine[name], str):
                moment = datetime.datetime.fromisoformat(mine[name].replace("Z", "+00:00"))
                mine[name] = moment.replace(tzinfo=None)
            if isinstance(value, float) and isinstance(mine[name], float):
                assert type(mine[name]) is type(value)
    return list(ours) == list(theirs)


@settings(max_examples=120, deadline=None)
@given(tables(), st.integers(1, 12), row_files.borders)
def test_every_row_is_in_exactly_one_split(table: Any, group: int, cuts: list[float]) -> None:
    """Row groups are the unit: one belongs to the split in which its first byte lies."""
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "t.parquet"
        pq.write_table(table, path, row_group_size=group)

        assert same(row_files.read_json(path, "PARQUET", cuts), pq.read_table(path))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.integers(0, 9), st.none() | st.sampled_from("abc"))),
    st.sampled_from(["n = 3", "n != 3", "n < 3 and s = 'b'", "n >= 4", "n is null", "s > 'a'",
                     "s is not null and n <= 7", "n > 2.5"]),
    row_files.borders,
)  # fmt: skip
def test_a_filter_keeps_the_rows_that_pass_wherever_it_is_applied(
    rows: list[tuple[int | None, str | None]], text: str, cuts: list[float]
) -> None:
    """Statistics may rule a row group out, and never a row that passes."""
    table = pa.table(
        {
            "n": pa.array([n for n, _ in rows], pa.int64()),
            "s": pa.array([s for _, s in rows], pa.string()),
            "other": pa.array(range(len(rows)), pa.int64()),
        }
    )
    compare = {
        "=": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }

    def passes(row: dict[str, Any]) -> bool:
        for one in parse_filter(text):
            value = row[one.column]
            if one.op in ("null", "notnull"):
                if (value is None) != (one.op == "null"):
                    return False
            elif value is None or not compare[one.op](value, one.value):
                return False
        return True

    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "t.parquet"
        pq.write_table(table, path, row_group_size=4)
        wanted = {"mrstream.input.where": text, "mrstream.input.columns": "other,n"}

        found = row_files.read_json(path, "PARQUET", cuts, wanted)

    expected = [row for row in straight(table) if passes(row)]
    assert found == [{"other": row["other"], "n": row["n"]} for row in expected]
    assert all(list(row) == ["other", "n"] for row in found)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.text("ab\t\n\r\\Né", max_size=5)), row_files.borders)
def test_columns_between_tabs_can_be_told_apart_again(
    values: list[str | None], cuts: list[float]
) -> None:
    table = pa.table({"s": pa.array(values, pa.string()), "n": range(len(values))})
    escapes = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}

    def read(field: str) -> str | None:
        if field == "\\N":
            return None
        parts = field.split("\\\\")
        for raw in "tnr":
            parts = [part.replace("\\" + raw, escapes[raw]) for part in parts]
        return "\\".join(parts)

    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "t.parquet"
        pq.write_table(table, path, row_group_size=3)
        pieces = row_files.read_pieces(path, "PARQUET", cuts, {"mrstream.input.lines": "tsv"})

    lines = b"".join(pieces).decode().split("\n")[:-1]
    assert [read(line.split("\t")[0]) for line in lines] == values
    assert [int(line.split("\t")[1]) for line in lines] == list(range(len(values)))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_one_line_or_the_same_rows(data: st.DataObject) -> None:
    """Bad bytes: a refusal that names the file, or rows; never a hang, never another exception."""
    table = pa.table({"a": list(range(50)), "b": [f"text {n}" for n in range(50)]})
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "t.parquet"
        pq.write_table(table, path, row_group_size=10)
        good = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(good) - 1))
            good[at] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(good)))
        path.write_bytes(good[:cut] if data.draw(st.booleans()) else good)
        try:
            for line in b"".join(row_files.read_pieces(path, "PARQUET", [0.5])).splitlines():
                json.loads(line)
        except (Corrupt, UserError) as error:
            assert "\n" not in str(error) and "t.parquet" in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a", "stands one of"),
        ("a = ", "ends with a number"),
        ("a = 1 or b = 2", "joined by `and`"),
        ("= 3", "begins with a column"),
        ("a is what", "null or not null"),
        ("a ~ 3", "is no word"),
    ],
)
def test_a_filter_that_makes_no_sense_says_why(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_filter(text)
