"""For all CSV files and all split sizes: every record exactly once, as Python's csv reads it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.mapreduce.dataflow import csv_rows, kernel, twin
from mrstream.mapreduce.dataflow.csv_rows import CsvRows
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.piece_reader import CountedFile
from mrstream.mapreduce.dataflow.record_form import CsvForm, CsvInput
from mrstream.streaming.conf.jobconf import JobConf
from tests.support import row_files
from tests.support.examples import examples

NO_HEADER = {"mrstream.csv.header": "false"}
_any_text = st.text('ab,"\r\n\t\\\0é', max_size=60)
_cells = st.lists(st.lists(st.text('ab,"\r\né', max_size=6), min_size=1, max_size=4), max_size=12)


def oracle(text: str) -> list[list[str]]:
    """What Python's csv gives; it takes an open quote at the end for closed."""
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


def is_closed(text: str) -> bool:
    """Whether every quote is closed: strict csv says so, but refuses other things too, so the
    text is closed if one more quote would begin or end nothing."""
    state = "start"
    for character in text:
        if state == "quoted":
            state = "after" if character == '"' else "quoted"
        elif character == '"' and state in ("start", "after"):
            state = "quoted"
        else:
            state = "start" if character in ",\r\n" else "field"
    return state != "quoted"


def written(cells: list[list[str]], quoting: int, end: str) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator=end).writerows(cells)
    return out.getvalue()


@settings(max_examples=examples(100), deadline=None)
@given(_any_text, st.lists(st.integers(0, 60), max_size=4), st.booleans())
def test_kernel_and_twin_read_csv_as_python_does(text: str, cuts: list[int], python: bool) -> None:
    data = text.encode()
    of = CsvInput(CsvForm.ARRAYS)
    reader = twin.CsvReader(of) if python else kernel.csv_reader(of)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    if not is_closed(text):
        with pytest.raises(ValueError, match="never closed"):
            for start, end in itertools.pairwise(places):
                reader.feed(data[start:end])
            reader.finish()
        return

    lines = b"".join(reader.feed(data[start:end]) for start, end in itertools.pairwise(places))
    lines += reader.finish()

    assert [json.loads(line) for line in lines.splitlines()] == oracle(text)
    assert reader.records == len(oracle(text))


_plain_field = st.text("abcdefg é", max_size=20)
_odd_field = st.sampled_from(
    ['"q"', '"a ""b"" c"', "a\\b", "t\tt", "\0", 'x"y', '"two\nlines"', ""]
)
_common_rows = st.lists(
    st.lists(_plain_field | _plain_field | _plain_field | _odd_field, min_size=1, max_size=5),
    max_size=30,
)


@settings(max_examples=examples(50), deadline=None)
@given(
    rows=_common_rows,
    form=st.sampled_from([CsvForm.OBJECTS, CsvForm.TABS]),
    columns=st.lists(st.integers(0, 5), max_size=6),
    dialect=st.sampled_from([(",", 0x22), (";", -1), ("\t", 0x27), ("|", 0x22)]),
    ending=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    limits=st.tuples(st.sampled_from([0, 3]), st.sampled_from([40, 1 << 20]), st.booleans()),
    cuts=st.lists(st.integers(0, 1500), max_size=3),
)
def test_common_records_are_written_as_all_others_are(
    rows: list[list[str]],
    form: CsvForm,
    columns: list[int],
    dialect: tuple[str, int],
    ending: str,
    limits: tuple[int, int, bool],
    cuts: list[int],
) -> None:
    """The kernel copies a record without quotes from where it lies; its twin knows no such way."""
    delimiter, quote = dialect
    fields_max, bytes_max, has_end = limits
    data = "".join(delimiter.join(row) + ending for row in rows).encode()
    names = tuple(b'%s"%s":' % (b"," * bool(n), b"name" * (n + 1)) for n in range(len(columns)))
    of = CsvInput(
        form, ord(delimiter), quote, end=len(data) // 2 if has_end else None,
        fields_max=fields_max, bytes_max=bytes_max, names=names, columns=tuple(columns),
    )  # fmt: skip
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    def told(reader: kernel.CsvReader) -> tuple[object, ...]:
        lines = b""
        try:
            for start, end in itertools.pairwise(places):
                lines += reader.feed(data[start:end])
                if reader.done:
                    break
            else:
                lines += reader.finish()
        except ValueError as error:
            return (str(error),)
        return lines, reader.records, reader.position, reader.done

    assert told(kernel.csv_reader(of)) == told(twin.CsvReader(of))


@settings(max_examples=examples(50), deadline=None)
@given(
    _any_text, st.sampled_from(list(CsvForm)), st.integers(0, 60), st.booleans(), st.integers(0, 3)
)
def test_kernel_and_twin_agree_in_every_form(
    text: str, form: CsvForm, end: int, quotes: bool, fields_max: int
) -> None:
    of = CsvInput(
        form,
        quote=0x22 if quotes else -1,
        end=end,
        fields_max=fields_max,
        names=(b'"a":', b',"b":'),
        columns=(2, 0) if form is not CsvForm.ARRAYS else None,
    )

    def run(reader: kernel.CsvReader) -> tuple[object, ...]:
        try:
            lines = reader.feed(text.encode()) + reader.finish()
        except ValueError as error:
            return (str(error),)
        return lines, reader.records, reader.done, reader.position

    assert run(kernel.csv_reader(of)) == run(twin.CsvReader(of))


def read_judged(path: Path, cuts: Sequence[float]) -> list[list[str]]:
    """Read all pieces with borders that are judged wherever that is possible."""
    found = []
    for piece in row_files.pieces_of(path, cuts):
        with CountedFile(RoutedFiles("file:///"), piece.url) as file:
            end = piece.start + piece.length
            rows = CsvRows(file, piece.start, end, JobConf(NO_HEADER), exact_bytes=0)
            found += [json.loads(line) for line in b"".join(rows.lines()).splitlines()]
    return found


@settings(max_examples=examples(85), deadline=None)
@given(_any_text.filter(is_closed), row_files.borders)
def test_every_record_is_in_exactly_one_split(text: str, cuts: list[float]) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "f.csv"
        path.write_bytes(text.encode())

        assert row_files.read_json(path, "CSV", cuts, NO_HEADER) == oracle(text)


@settings(max_examples=examples(85), deadline=None)
@given(_cells, st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]), st.sampled_from(["\n", "\r\n"]),
       row_files.borders)  # fmt: skip
def test_borders_of_well_formed_files_are_judged_right(
    cells: list[list[str]], quoting: int, end: str, cuts: list[float]
) -> None:
    text = written(cells, quoting, end)
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "f.csv"
        path.write_bytes(text.encode())

        assert read_judged(path, cuts) == oracle(text)


@settings(max_examples=examples(85), deadline=None)
@given(_any_text.filter(is_closed), row_files.borders, st.sampled_from([3, 8, 1000]))
def test_a_border_that_was_judged_wrong_is_found_out(
    text: str, cuts: list[float], window_bytes: int
) -> None:
    """Whatever the file, and however little is looked at: all maps succeed only if every record
    was given exactly once."""
    with tempfile.TemporaryDirectory() as room, pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "WINDOW_BYTES", window_bytes)
        path = Path(room) / "f.csv"
        path.write_bytes(text.encode())
        try:
            found = read_judged(path, cuts)
        except Corrupt as error:
            assert "mrstream.input.borders=exact" in str(error) or "never closed" in str(error)
            return

    assert found == oracle(text)


def test_a_field_longer_than_the_window_is_found_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing around the border tells that it lies inside quotes; the map before knows."""
    monkeypatch.setattr(csv_rows, "WINDOW_BYTES", 64)
    inside = "line inside quotes\n" * 50
    path = tmp_path / "f.csv"
    path.write_text(f'a,b\n"{inside}",c\nd,e\n')

    with pytest.raises(Corrupt, match=r"mrstream\.input\.borders=exact"):
        read_judged(path, [0.5])
    assert row_files.read_json(path, "CSV", [0.3, 0.5], NO_HEADER) == [
        ["a", "b"],
        [inside, "c"],
        ["d", "e"],
    ]


@settings(max_examples=examples(35), deadline=None)
@given(_cells, row_files.borders, st.sampled_from(["", "\ufeff"]), st.booleans())
def test_with_a_header_a_record_is_an_object(
    cells: list[list[str]], cuts: list[float], mark: str, is_packed: bool
) -> None:
    """As csv.DictReader gives it; a shorter record has nulls; compressed files are read whole."""
    import gzip

    rows = [row[:3] for row in cells]
    text = written([["x", "y z", 'q"'], *rows], csv.QUOTE_MINIMAL, "\r\n")
    straight = [dict(row) for row in csv.DictReader(io.StringIO(text, newline=""))]
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / ("f.csv.gz" if is_packed else "f.csv")
        data = (mark + text).encode()
        path.write_bytes(gzip.compress(data) if is_packed else data)

        assert row_files.read_json(path, "CSV", [] if is_packed else cuts) == straight
        chosen = row_files.read_json(
            path, "CSV", [] if is_packed else cuts, {"mrstream.input.columns": "y z,x"}
        )
    assert chosen == [{"y z": row["y z"], "x": row["x"]} for row in straight]


@pytest.mark.parametrize(
    ("data", "settings_", "says"),
    [
        (b"a,b\n1,2,3\n", {}, "the record at byte 4 has 3 fields, and the header 2"),
        (b'a,b\n1,"2\n', {}, "the quote at byte 6 is never closed"),
        (b"a,a\n1,2\n", {}, "the header has 'a' twice"),
        (b"a\n\xe9t\xe9\n", {}, "mrstream.csv.encoding=latin-1"),
        (b"a\xe9\n1\n", {}, "the header is no utf-8"),
        (b"a,b\n1,2\n", {"mrstream.input.columns": "c"}, "has no column 'c'; it has a, b"),
        (b"1,2\n", {**NO_HEADER, "mrstream.input.columns": "c"}, "columns have no names"),
    ],
)
def test_a_bad_file_is_one_line(
    data: bytes, settings_: dict[str, str], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(data)

    with pytest.raises((Corrupt, UserError)) as caught:
        row_files.read_pieces(path, "CSV", [0.6], settings_)

    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("before", range(4))
def test_text_is_checked_in_parts_and_no_border_of_them_is_seen(
    before: int, tmp_path: Path
) -> None:
    """Characters of several bytes lie on every border between parts; a wrong byte is found in
    any of them, and so is a last character that is not all there."""
    path = tmp_path / "f.csv"
    text = "a" * before + "é漢😀" * 40_000

    path.write_text(f"x\n{text}\n")
    assert row_files.read_json(path, "CSV", []) == [{"x": text}]
    for wrong in (b"\xe9", "漢".encode()[:2]):
        path.write_bytes(f"x\n{text}".encode() + wrong + b"\n")
        with pytest.raises(Corrupt, match=r"b'\\xe.*' is no utf-8"):
            row_files.read_pieces(path, "CSV", [])


def test_delimiter_quote_and_encoding_are_the_jobs(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a;b\n'x;1';\xe9\n")
    conf = {
        "mrstream.csv.delimiter": ";",
        "mrstream.csv.quote": "'",
        "mrstream.csv.encoding": "latin-1",
    }
    tabs = {"mrstream.input.lines": "tsv", **conf}

    assert row_files.read_json(path, "CSV", [], conf) == [{"a": "x;1", "b": "é"}]
    assert row_files.read_pieces(path, "CSV", [], tabs) == ["x;1\té\n".encode()]
