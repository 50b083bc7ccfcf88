"""For all Avro and Arrow files and all split sizes: every record exactly once, as fastavro and
pyarrow read it; and damaged ones are one line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.avro_text import java_text
from tests.property.streaming.test_formats_parquet import as_json, same, tables
from tests.support import row_files
from tests.support.examples import examples

_text = st.text(st.characters(codec="utf-8"), max_size=6)
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "b", "type": "bytes"},
        {"name": "x", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": "boolean"}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
    ],
}
_records = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | _text,
        "b": st.binary(max_size=6),
        "x": st.floats(),
        "tags": st.lists(_text, max_size=3),
        "m": st.dictionaries(_text, st.booleans(), max_size=2),
        "d": st.dates(),
    }
)


def write(path: Path, records: list[dict[str, Any]], codec: str, interval: int) -> None:
    with open(path, "wb") as out:
        fastavro.writer(out, SCHEMA, records, codec=codec, sync_interval=interval)


@settings(max_examples=examples(35), deadline=None)
@given(
    st.lists(_records, max_size=20),
    st.sampled_from(["null", "deflate", "snappy"]),
    st.integers(1, 300),
    row_files.borders,
)
def test_every_record_is_in_exactly_one_split(
    records: list[dict[str, Any]], codec: str, interval: int, cuts: list[float]
) -> None:
    """A block belongs to the split in which the sync mark in front of it begins."""
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "f.avro"
        write(path, records, codec, interval)
        with open(path, "rb") as file:
            straight = [as_json(record) for record in fastavro.reader(file)]

        assert row_files.read_json(path, "AVRO", cuts) == straight


@settings(max_examples=examples(25), deadline=None)
@given(tables(), st.integers(1, 9), st.booleans(), row_files.borders)
def test_every_batch_of_an_arrow_file_is_in_exactly_one_split(
    table: Any, rows: int, is_stream: bool, cuts: list[float]
) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "t.arrow"
        open_it = pa.ipc.new_stream if is_stream else pa.ipc.new_file
        with open_it(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)

        assert same(row_files.read_json(path, "ARROW", cuts), table)


@settings(max_examples=examples(70), deadline=None)
@given(st.sampled_from(["AVRO", "ARROW"]), st.data())
def test_a_damaged_file_is_one_line_or_records(kind: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "damaged"
        if kind == "AVRO":
            record = {"n": 1, "s": "a", "b": b"b", "x": 1.5, "tags": ["t"], "m": {"k": True}}
            write(path, [record | {"d": 3}] * 30, "deflate", 60)
        else:
            table = pa.table({"a": list(range(50)), "b": [f"text {n}" for n in range(50)]})
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=10)
        good = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(good) - 1))
            good[at] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(good)))
        path.write_bytes(good[:cut] if data.draw(st.booleans()) else good)
        try:
            for line in b"".join(row_files.read_pieces(path, kind, [0.5])).splitlines():
                json.loads(line)
        except (Corrupt, UserError) as error:
            assert "\n" not in str(error) and "damaged" in str(error)


def test_columns_and_filters_of_avro(tmp_path: Path) -> None:
    record = {"s": "a", "b": b"", "x": 1.0, "tags": ["t\t"], "m": {}, "d": 0}
    write(tmp_path / "f", [{"n": n} | record for n in range(9)], "null", 50)
    conf = {"mrstream.input.where": "n >= 7 and s = 'a'", "mrstream.input.columns": "tags,n"}

    as_objects = row_files.read_json(tmp_path / "f", "AVRO", [0.3, 0.6], conf)
    as_tabs = row_files.read_pieces(tmp_path / "f", "AVRO", (), {**conf, **TSV})

    assert as_objects == [{"tags": ["t\t"], "n": 7}, {"tags": ["t\t"], "n": 8}]
    assert b"".join(as_tabs) == b'["t\\\\t"]\t7\n["t\\\\t"]\t8\n'


TSV = {"mrstream.input.lines": "tsv"}


def test_the_text_form_of_hadoops_avro_as_text(tmp_path: Path) -> None:
    """AvroAsTextInputFormat: GenericData.toString is the key, the value is empty; logical types
    are the numbers below them."""
    record = {
        "n": -5,
        "s": 'q"\n\x7f',
        "b": b"\xff\x00a",
        "x": 1e10,
        "tags": ["é"],
        "m": {"k": True},
    }
    write(tmp_path / "f", [record | {"d": 3}, record | {"s": None, "x": float("nan"), "d": 4}],
          "deflate", 1)  # fmt: skip
    pieces = row_files.pieces_of(tmp_path / "f", [0.5])
    splits = [Split(n, "AVRO_AS_TEXT", (piece,)) for n, piece in enumerate(pieces)]
    lines = b"".join(b"".join(SplitReader(s, JobConf({}), RoutedFiles("file:///"))) for s in splits)

    assert lines.decode().splitlines() == [
        '{"n": -5, "s": "q\\"\\n\\u007F", "b": "ÿ\\u0000a", "x": 1.0E10, "tags": ["é"], '
        '"m": {"k": true}, "d": 3}\t',
        '{"n": -5, "s": null, "b": "ÿ\\u0000a", "x": "NaN", "tags": ["é"], '
        '"m": {"k": true}, "d": 4}\t',
    ]


@pytest.mark.parametrize(
    ("datum", "schema", "text"),
    [
        (b"raw\n", "bytes", b"raw\n\t\n"),
        (b"\x01\xff", {"type": "fixed", "name": "f", "size": 2}, b"[1, -1]\t\n"),
        (1.5, ["null", "float"], b"1.5\t\n"),
        (3.4028235e38, "float", b"3.4028235E38\t\n"),
        ("A", {"type": "enum", "name": "e", "symbols": ["A"]}, b'"A"\t\n'),
        ("\u2028", "string", b'"\\u2028"\t\n'),
    ],
)
def test_the_text_form_of_single_data(datum: Any, schema: Any, text: bytes) -> None:
    assert java_text(datum, schema) == text
