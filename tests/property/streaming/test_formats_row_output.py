"""For all records and schemas: what is written is what was given, or the record that does not fit
is told; and the way of whole blocks and the way of single records agree."""

from __future__ import annotations

import base64
import csv
import io
import json
import string
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mrstream.cluster.errors import UserError
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.arrow_output import ArrowSink, ParquetSink
from mrstream.streaming.formats.output_format import OutputWriter, open_output
from mrstream.streaming.formats.row_output import Outlet
from mrstream.streaming.formats.row_schema import (
    Fields,
    Misfit,
    fitted,
    inferred,
    parse_schema,
)
from mrstream.streaming.formats.writable import TEXT
from tests.support import row_files
from tests.support.examples import examples

SCHEMA = (
    "n:long,i:int,x:double,ok:bool,s:string,raw:bytes,day:date,at:timestamp,when:instant,"
    "tags:list<string>,place:struct<x:double,name:string>"
)
_text = st.text(st.characters(codec="utf-8"), max_size=6)
_values: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "ok": st.booleans(),
    "s": _text,
    "raw": st.binary(max_size=5).map(lambda b: base64.b64encode(b).decode()),
    "day": st.dates().map(str),
    "at": st.datetimes().map(lambda m: m.isoformat()),
    "when": st.datetimes().map(lambda m: m.isoformat() + "+02:00"),
    "tags": st.lists(st.none() | _text, max_size=3),
    "place": st.fixed_dictionaries({}, optional={"x": st.floats(-9, 9), "name": _text}),
}
records = st.fixed_dictionaries(
    {}, optional={name: st.none() | value for name, value in _values.items()}
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(string.ascii_letters + '" :,<é', max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
wild = st.dictionaries(st.sampled_from([*_values, "other"]), anything, max_size=3)


def open_in(
    room: str, kind: str, settings: Mapping[str, str] = MappingProxyType({}), **conf: str
) -> OutputWriter:
    """Open the part file of task 0 in a directory."""

    def create(name: str) -> BinaryIO:
        path = Path(room, name)
        path.parent.mkdir(exist_ok=True)
        return open(path, "wb")

    properties = {"mapred.output.format.class": kind, **settings}
    properties |= {f"mrstream.output.{name}": value for name, value in conf.items()}
    return open_output(JobConf(properties), create, 0, key_type=TEXT, value_type=TEXT)


def write_all(writer: OutputWriter, lines: list[bytes]) -> None:
    """Write lines and close."""
    for line in lines:
        writer.write(line + b"\n", 1)
    writer.close()


def fits(fields: Fields, line: bytes) -> bool:
    """Whether a record fits, judged alone."""
    try:
        fitted(fields, json.loads(line))
    except Misfit:
        return False
    return True


@settings(max_examples=examples(30), deadline=None)
@given(st.sampled_from(["parquet", "arrow", "avro"]), st.lists(records, max_size=12))
def test_what_fits_is_read_back_as_it_was_given(kind: str, rows: list[dict[str, Any]]) -> None:
    """By pyarrow and fastavro."""
    fields = parse_schema(SCHEMA)
    with tempfile.TemporaryDirectory() as room:
        write_all(
            open_in(room, kind, schema=SCHEMA),
            [json.dumps(row, ensure_ascii=bool(n % 2)).encode() for n, row in enumerate(rows)],
        )
        found = read_back(Path(room, f"part-00000.{kind}"))

    assert found == [fitted(fields, row) for row in rows]


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_map_can_be_written_as_it_was_read(kind: str, tmp_path: Path) -> None:
    """An object, or pairs, as which tables give one; a key of its own for each."""
    schema = "m:map<long>"
    lines = [b'{"m": {"a": 1, "b": null}}', b'{"m": [["a", 1], ["b", null]]}', b'{"m": []}']
    write_all(open_in(str(tmp_path), kind, schema=schema), lines)
    first = row_files.read_json(tmp_path / f"part-00000.{kind}", kind.upper())
    again = [json.dumps(row).encode() for row in first]
    write_all(open_in(str(tmp_path / "again"), kind, schema=schema), again)

    assert [dict(row["m"]) for row in first] == [{"a": 1, "b": None}] * 2 + [{}]
    assert row_files.read_json(tmp_path / f"again/part-00000.{kind}", kind.upper()) == first
    for wrong in (b'[["a", 1], ["a", 2]]', b'[["a"]]', b"[[1, 2]]", b'["a"]'):
        with pytest.raises(UserError, match="is no map<long>"):
            write_all(open_in(str(tmp_path), kind, schema=schema), [b'{"m": %s}' % wrong])


_cells = st.none() | st.text("ab,;\"'\r\n\t\0é ", max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(_cells, _cells, st.none() | st.integers(-9, 9)), max_size=8),
    st.integers(1, 3),
    st.sampled_from([(",", '"'), (";", "'"), ("\t", '"')]),
    row_files.borders,
)
@example(rows=[("a\rb", "c", 1)], columns=2, dialect=(",", '"'), cuts=[0.5])
def test_csv_is_read_back_as_it_was_given(
    rows: list[tuple[str | None, str | None, int | None]],
    columns: int,
    dialect: tuple[str, str],
    cuts: list[float],
) -> None:
    """By Python's csv and by ourselves, over splits of any size; null is an empty field."""
    names = ["s", "t", "n"][:columns]
    records = [dict(zip(names, row, strict=False)) for row in rows]
    of = {"mrstream.csv.delimiter": dialect[0], "mrstream.csv.quote": dialect[1]}
    with tempfile.TemporaryDirectory() as room:
        writer = open_in(room, "csv", of, schema="s:string,t:string,n:long"[: 9 * columns])
        write_all(writer, [json.dumps(record).encode() for record in records])
        path = Path(room, "part-00000.csv")
        text = path.read_bytes().decode()
        ours = row_files.read_json(path, "CSV", cuts, of)

    theirs = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=dialect[0], quotechar=dialect[1]
    )
    wanted = [
        {name: "" if value is None else str(value) for name, value in record.items()}
        for record in records
    ]
    assert ours == list(theirs) == wanted


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        (("encoding", "latin-1"), "漢", "cannot be written in iso8859-1"),
        (("quote", "none"), "a,b", "cannot be written without quotes"),
        (("quote", "none"), "a\rb", "cannot be written without quotes"),
        (("quote", "none"), "", "is no record without quotes"),
    ],
)
def test_what_a_dialect_of_csv_cannot_hold_does_not_fit(
    setting: tuple[str, str], value: str, why: str, tmp_path: Path
) -> None:
    """Nothing is written as something else; it is told as any record that does not fit."""
    of = {f"mrstream.csv.{setting[0]}": setting[1]}
    lines = [json.dumps({"s": text}).encode() for text in ("é", value, "b")]

    with pytest.raises(UserError, match=f"line 2 of the output does not fit: field s: .*{why}"):
        write_all(open_in(str(tmp_path), "csv", of, schema="s:string"), lines)
    write_all(open_in(str(tmp_path), "csv", of, schema="s:string", rejects="50%"), lines)

    encoding = "latin-1" if setting[0] == "encoding" else "utf-8"
    assert (tmp_path / "part-00000.csv").read_bytes().decode(encoding) == "s\né\nb\n"
    assert why.encode() in (tmp_path / "_rejected/part-00000").read_bytes()
    with pytest.raises(UserError, match="the header of CSV cannot be written"):
        open_in(str(tmp_path), "csv", of, schema='"漢,":string')


def test_a_field_that_is_no_text_is_told_as_one(tmp_path: Path) -> None:
    """Half of a surrogate pair can stand in JSON, as a name too."""
    writer = open_in(str(tmp_path), "csv", schema="m:map<long>", rejects="100%")
    write_all(writer, [b'{"\\ud800": 1}', b'{"m": {"\\ud800": 1}}', b'{"m": {"a": 1}}'])

    assert (tmp_path / "part-00000.csv").read_bytes() == b'm\n"{""a"": 1}"\n'
    assert writer.rejected == 2


CODECS = {
    "parquet": ["GzipCodec", "SnappyCodec", "ZStandardCodec", "Lz4Codec"],
    "arrow": ["ZStandardCodec", "Lz4Codec"],
    "avro": ["DeflateCodec", "SnappyCodec", "ZStandardCodec", "BZip2Codec"],
}


@pytest.mark.parametrize(("kind", "codec"), [(k, c) for k, names in CODECS.items() for c in names])
def test_every_codec_is_written_and_read(kind: str, codec: str, tmp_path: Path) -> None:
    """By pyarrow and fastavro, and by ourselves; Parquet has snappy without being told."""
    rows = [{"n": n, "s": "again and again"} for n in range(500)]
    lines = [json.dumps(row).encode() for row in rows]
    found = {}
    for compress in ("true", "false"):
        (room := tmp_path / compress).mkdir()
        settings = {"mapred.output.compress": compress, "mapred.output.compression.codec": codec}
        write_all(open_in(str(room), kind, settings, schema="n:long,s:string"), lines)
        found[compress] = path = room / f"part-00000.{kind}"
        assert read_back(path) == row_files.read_json(path, kind.upper(), [0.5]) == rows

    sizes = {path.stat().st_size for path in found.values()}
    assert (len(sizes) == 1) == ((kind, codec) == ("parquet", "SnappyCodec"))


def read_back(path: Path) -> list[dict[str, Any]]:
    """The records of a file as its own library reads them."""
    match path.suffix:
        case ".parquet":
            return list(pq.read_table(path).to_pylist())
        case ".arrow":
            with pa.ipc.open_file(path) as reader:
                return list(reader.read_all().to_pylist())
    with open(path, "rb") as file:
        return [record for record in fastavro.reader(file) if isinstance(record, dict)]


class _Kept(ParquetSink):
    """Keeps its tables."""

    def _write(self, table: Any) -> None:
        self.table = table


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(records | wild, min_size=1, max_size=4))
def test_blocks_and_single_records_agree(rows: list[dict[str, Any]]) -> None:
    """Arrow takes a block only if every record of it fits, and then makes the same of it."""
    fields = parse_schema(SCHEMA)
    lines = [json.dumps(row).encode() for row in rows]
    with open("/dev/null", "wb") as nowhere:
        vector, single = (_Kept(Outlet(nowhere), fields, None) for _ in range(2))
        taken = vector.take_lines(b"\n".join(lines) + b"\n", len(lines))
        if not taken:
            return
        assert all(fits(fields, line) for line in lines)
        single.take_rows([fitted(fields, json.loads(line)) for line in lines])
        for sink in (vector, single):
            sink.close()

    ours, theirs = vector.table.to_pylist(), single.table.to_pylist()
    assert json.dumps(ours, default=str) == json.dumps(theirs, default=str)


def test_the_ordinary_block_is_taken_at_once() -> None:
    """The fast way is not merely allowed: it is the one that is taken."""
    fields = parse_schema(SCHEMA)
    line = (
        b'{"n":1,"i":2,"x":0.5,"ok":true,"s":"a","raw":"AAE=","day":"2020-02-03",'
        b'"at":"2020-02-03T04:05:06","when":"2020-02-03T04:05:06Z","tags":["a"],"place":{"x":1.5}}\n'
    )
    with open("/dev/null", "wb") as nowhere:
        sink: ArrowSink = _Kept(Outlet(nowhere), fields, None)

        assert sink.take_lines(line * 3, 3)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(records | wild, min_size=1, max_size=12))
def test_rejects_go_aside_with_their_line_and_field(rows: list[dict[str, Any]]) -> None:
    fields = parse_schema(SCHEMA)
    lines = [json.dumps(row).encode() for row in rows]
    good = [line for line in lines if fits(fields, line)]
    with tempfile.TemporaryDirectory() as room:
        writer = open_in(room, "parquet", schema=SCHEMA, rejects="100%")
        write_all(writer, lines)
        found = pq.read_table(Path(room, "part-00000.parquet")).num_rows
        aside = Path(room, "_rejected", "part-00000")
        told = aside.read_bytes().splitlines() if aside.exists() else []

    assert found == writer.records_written == len(good)
    assert writer.rejected == len(told) == len(lines) - len(good)
    for line in told:
        number, _, why, original = line.split(b"\t", 3)
        assert lines[int(number) - 1] == original and why


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), anything, min_size=1, max_size=3)))
def test_a_schema_that_is_found_in_records_is_fixed_and_complete(rows: list[Any]) -> None:
    """Every record fits the schema that was found in all of them, unless two have no type in
    common."""
    schema = inferred(rows)

    assert {name for row in rows for name in row} == {field.name for field in schema}
    assert parse_schema(",".join(map(str, schema))) == schema if schema else not rows


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"n": 1.5}', 'line 3 of the output does not fit: field n: 1.5 is no long'),
        (b'{"n": "7"}', 'field n: "7" is no long'),
        (b'{"m": 1}', "field m: the schema has no such field"),
        (b'[1]', "is no object"),
        (b'{"n": 1', "it is no JSON"),
        (b'', "it is no JSON"),
        (b'{"place": {"x": true}}', "field place.x: true is no double"),
        (b'{"tags": ["a", 3]}', "field tags[1]: 3 is no string"),
        (b'{"day": "2020-13-01"}', 'field day: "2020-13-01" is no date'),
        (b'{"at": "2020-01-01T00:00:00Z"}', "is no timestamp"),
        (b'{"n": 9223372036854775808}', "is no long"),
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_fails_with_line_field_and_value(
    line: bytes, says: str, tmp_path: Path
) -> None:
    writer = open_in(str(tmp_path), "parquet", schema=SCHEMA)

    with pytest.raises(UserError) as caught:
        write_all(writer, [b'{"n": 1}', b'{"n": 2}', line])

    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_after_a_thousand_records_the_schema_is_fixed(tmp_path: Path) -> None:
    """NU-14: mixed values are taken while the schema is being found, and refused behind it."""
    early = [b'{"a": 1}'] * 999 + [b'{"a": 2.5, "b": null}']
    write_all(open_in(str(tmp_path), "parquet"), [*early, b'{"b": "x"}'])
    table = pq.read_table(tmp_path / "part-00000.parquet")

    assert table.schema.types == [pa.float64(), pa.string()]
    with pytest.raises(UserError, match=r"line 1001 .* field c"):
        write_all(open_in(str(tmp_path), "parquet"), [*early, b'{"c": 1}'])


def test_more_rejects_than_allowed_fail_the_attempt(tmp_path: Path) -> None:
    writer = open_in(str(tmp_path), "parquet", schema="a:long", rejects="10%")

    with pytest.raises(UserError, match=r"2 of 10 records .* more than the 10%"):
        write_all(writer, [b'{"a": 1}'] * 8 + [b'{"a": "x"}'] * 2)
