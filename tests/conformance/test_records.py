"""Jobs over records of other formats, as users run them; other libraries judge the results."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
from io import BytesIO
from pathlib import Path

import duckdb
import fastavro
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from warcio.warcwriter import WARCWriter

from mrstream.cluster.config import extras
from mrstream.streaming.formats.sequence_file import SequenceFileReader, sequence_file_writer
from mrstream.streaming.formats.writable import NULL, TEXT
from mrstream.streaming.records.partitioner import HashPartition, partition
from tests.property.streaming.test_formats_proto import delimited, descriptors
from tests.support.local_jobs import Desk

ROWS = [
    {"id": n, "name": None if n % 7 == 0 else f'name {n} "q"', "x": n / 4, "ok": n % 2 == 0}
    for n in range(1000)
]
JSON = "import json, sys\nfor line in sys.stdin:\n    row = json.loads(line)\n    "


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    pq.write_table(pa.Table.from_pylist(ROWS), desk.cwd / "rows.parquet", row_group_size=100)
    desk.write("pass.py", JSON + "print(json.dumps(row))\n")
    return desk


def lines_of(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in data.decode().replace("\t\n", "\n").splitlines()]


def by_id(row: dict[str, object]) -> int:
    number = row["id"]
    assert isinstance(number, int)
    return number


def test_a_program_reads_parquet_as_json_lines(desk: Desk) -> None:
    """MR-29: readers are pluggable; the program reads lines as ever."""
    ran = desk.run(
        *("-input", "rows.parquet", "-inputformat", "parquet", "-mapper", "pass.py"),
        *("-reducer", "NONE", "-D", "fs.local.block.size=10000"),
    )

    assert ran.status == 0, ran.stderr
    assert "number of splits:" in ran.stderr and "number of splits:1\n" not in ran.stderr
    assert sorted(lines_of(ran.stdout), key=by_id) == ROWS


def test_only_some_columns_and_rows_are_read(desk: Desk) -> None:
    ran = desk.run(
        *("-input", "rows.parquet", "-inputformat", "parquet", "-mapper", "cat"),
        *("-reducer", "NONE", "-D", "mrstream.input.columns=x,id"),
        *("-D", "mrstream.input.where=id >= 990 and ok = true", "-D", "mrstream.input.lines=tsv"),
    )

    assert ran.status == 0, ran.stderr
    assert ran.stdout.decode().split("\n")[0] == "247.5\t990"
    assert len(ran.stdout.splitlines()) == 5


def test_an_identity_reads_lines_and_a_reducer_gets_them_sorted(desk: Desk) -> None:
    ran = desk.run(
        *("-input", "rows.parquet", "-inputformat", "parquet", "-reducer", "cat"),
        *("-D", "mrstream.input.columns=id"),
    )

    assert ran.status == 0, ran.stderr
    assert ran.stdout.replace(b"\t\n", b"\n") == b"".join(
        sorted(b'{"id":%d}\n' % n for n in range(1000))
    )


@pytest.mark.parametrize("reduces", [0, 2])
def test_json_lines_become_parquet_that_others_read(desk: Desk, reduces: int) -> None:
    """pandas and DuckDB read what we write."""
    desk.write("in", "".join(json.dumps(row) + "\n" for row in ROWS))
    ran = desk.job(
        *("-mapper", "pass.py", "-reducer", "pass.py", "-numReduceTasks", str(reduces)),
        *("-outputformat", "parquet"),
        *("-D", "mrstream.output.schema=id:long,name:string,x:double,ok:bool"),
    )

    assert ran.status == 0, ran.stderr
    frame = pandas.read_parquet(desk.out).sort_values("id")
    asked = f"select sum(id), count(name), max(x) from '{desk.out}/*.parquet'"
    found = duckdb.sql(asked).fetchall()
    assert list(frame["id"]) == [row["id"] for row in ROWS]
    assert list(frame["x"]) == [row["x"] for row in ROWS]
    assert found == [(sum(range(1000)), 857, 249.75)]


def test_we_read_what_others_wrote(desk: Desk) -> None:
    frame = pandas.DataFrame({"id": range(50), "when": pandas.Timestamp("2020-02-03T04:05:06")})
    frame.to_parquet(desk.cwd / "pandas.parquet")
    duckdb.sql(
        f"copy (select range as id, range * 0.5::double as x from range(50)) to "
        f"'{desk.cwd}/duck.parquet' (format parquet, row_group_size 10)"
    )
    words = ["-inputformat", "parquet", "-mapper", "cat", "-reducer", "NONE", "-input"]

    pandas_rows = lines_of(desk.run(*words, "pandas.parquet").stdout)
    duck_rows = lines_of(desk.run(*words, "duck.parquet").stdout)

    assert [row["id"] for row in pandas_rows] == list(range(50))
    assert str(pandas_rows[0]["when"]).startswith("2020-02-03T04:05:06")
    assert duck_rows == [{"id": n, "x": n / 2} for n in range(50)]


def test_a_record_that_does_not_fit_fails_the_job_or_goes_aside(desk: Desk) -> None:
    desk.write("in", '{"a": 1}\n{"a": "x"}\n{"a": 3}\n')
    words = ["-mapper", "cat", "-reducer", "NONE", "-outputformat", "parquet"]
    words += ["-D", "mrstream.output.schema=a:long"]

    refused = desk.job(*words)
    assert refused.status == 1
    assert 'line 2 of the output does not fit: field a: "x" is no long' in refused.stderr
    assert not list(desk.out.glob("*.parquet"))

    desk.out.rename(desk.cwd / "failed")
    kept = desk.job(*words, "-D", "mrstream.output.rejects=50%")
    assert kept.status == 0, kept.stderr
    assert "Rejected output records=1" in kept.stderr
    assert pq.read_table(desk.out / "part-00000.parquet").to_pylist() == [{"a": 1}, {"a": 3}]
    aside = (desk.out / "_rejected" / "part-00000").read_text()
    assert aside == '2\ta\t"x" is no long\t{"a": "x"}\n'


def test_a_schema_may_stand_in_a_file(desk: Desk) -> None:
    desk.write("in", '{"a": 1, "b": null}\n')
    desk.write("fields", "a:int\nb:list<double>\n")

    ran = desk.job(
        *("-mapper", "cat", "-reducer", "NONE", "-outputformat", "parquet"),
        *("-D", "mrstream.output.schema=fields"),
    )

    assert ran.status == 0, ran.stderr
    schema = pq.read_schema(desk.out / "part-00000.parquet")
    assert schema.types == [pa.int32(), pa.list_(pa.float64())]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-D", "mrstream.input.columns=id,nope"], "has no column 'nope'; it has id, name, x, ok"),
        (["-D", "mrstream.input.where=id ="], "a comparison ends with a number"),
        (["-D", "mrstream.input.lines=xml"], "it must be json or tsv"),
        (["-D", "mrstream.output.schema=a:what"], "and not one of bool"),
        (["-D", "mrstream.output.rejects=200"], "0 to 100 percent"),
        (["-D", "mrstream.output.schema=nope"], "cannot be read from"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(desk: Desk, words: list[str], says: str) -> None:
    ran = desk.run(
        *("-input", "rows.parquet", "-inputformat", "parquet", "-mapper", "cat"),
        *("-reducer", "NONE", "-output", str(desk.out), "-outputformat", "parquet", *words),
    )

    assert ran.status == 1
    assert says in ran.line(says)
    assert "Traceback" not in ran.stderr


def test_a_file_that_is_no_parquet_fails_the_attempt_with_its_name(desk: Desk) -> None:
    desk.write("text", "this is no parquet file\n" * 100)

    ran = desk.run("-input", "text", "-inputformat", "parquet", "-mapper", "cat")

    assert ran.status == 1
    assert f"file:{desk.cwd}/text: " in ran.stderr and "Traceback" not in ran.stderr


def test_a_job_whose_format_needs_an_extra_is_refused_without_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The format alone asks for the extra; the line to type is in the message."""
    hidden = desk.write("hidden/pyarrow.py", "raise ImportError('hidden')\n").parent
    desk.write(
        "hidden/sitecustomize.py",
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pyarrow' else find(name, *a)\n",
    )
    plain = desk.environment()
    plain["PYTHONPATH"] = f"{hidden}:{plain['PYTHONPATH']}"
    monkeypatch.setattr(desk, "environment", lambda: plain)

    for words in (["-inputformat", "parquet"], ["-outputformat", "parquet", "-output", "o"]):
        ran = desk.run("-input", "rows.parquet", "-mapper", "cat", *words)

        assert ran.status == 1
        assert extras.pip_line(["records"]) in ran.line("needs the extra records")
        assert "no pyarrow" in ran.stderr


def test_csv_with_line_ends_in_quotes_is_cut_into_splits(desk: Desk) -> None:
    """pandas writes it, and every record arrives once, whichever split it lies in."""
    frame = pandas.DataFrame(
        {"id": range(500), "note": [f'line one\n"{n}", two\r\n' * (n % 3) for n in range(500)]}
    )
    frame.to_csv(desk.cwd / "f.csv", index=False)

    ran = desk.run(
        *("-input", "f.csv", "-inputformat", "csv", "-mapper", "cat", "-reducer", "NONE"),
        *("-D", "fs.local.block.size=5000"),
    )

    assert ran.status == 0, ran.stderr
    assert "number of splits:1\n" not in ran.stderr
    found = sorted(lines_of(ran.stdout), key=lambda row: int(str(row["id"])))
    assert [row["note"] for row in found] == list(frame["note"])


def test_csv_and_avro_are_written_so_that_others_read_them(desk: Desk) -> None:
    desk.write("in", "".join(json.dumps(row) + "\n" for row in ROWS))
    words = ["-mapper", "cat", "-reducer", "NONE", "-outputformat"]

    ran = desk.job(*words, "csv", "-D", "mapreduce.output.fileoutputformat.compress=true",
                   "-D", "mapreduce.output.fileoutputformat.compress.codec=GzipCodec")  # fmt: skip
    assert ran.status == 0, ran.stderr
    frame = pandas.read_csv(desk.out / "part-00000.csv.gz")
    assert list(frame["id"]) == list(range(1000)) and frame["name"].count() == 857
    assert list(frame["ok"]) == [row["ok"] for row in ROWS]

    desk.out.rename(desk.cwd / "csv")
    ran = desk.job(*words, "avro")
    assert ran.status == 0, ran.stderr
    with open(desk.out / "part-00000.avro", "rb") as file:
        assert list(fastavro.reader(file)) == ROWS

    back = desk.run(
        "-input", str(desk.out), "-inputformat", "avro", "-mapper", "cat", "-reducer", "NONE"
    )
    text = desk.run(
        *("-input", str(desk.out), "-mapper", "cat", "-reducer", "NONE", "-inputformat"),
        "org.apache.avro.mapred.AvroAsTextInputFormat",
    )
    assert lines_of(back.stdout) == ROWS
    assert (
        text.stdout.splitlines()[1]
        == b'{"id": 1, "name": "name 1 \\"q\\"", "x": 0.25, "ok": false}\t'
    )


USERS = JSON + "print(row['id'], 'name=' + row['name'], sep='\\t')\n"
ORDERS = JSON + "print(row['user'], row['total'], sep='\\t')\n"
JOIN = """
import json, os, sys
from itertools import groupby
outputs = os.environ["MRSTREAM_OUTPUTS"]
strangers = open(outputs + "/strangers", "w")
clean = open(outputs + "/clean", "w")
for user, group in groupby(sys.stdin, key=lambda line: line.split("\\t")[0]):
    values = [line.rstrip("\\n").split("\\t", 1)[1] for line in group]
    names = [value[5:] for value in values if value.startswith("name=")]
    total = sum(int(value) for value in values if not value.startswith("name="))
    if not names:
        strangers.write(user + "\\n")
    else:
        clean.write(json.dumps({"name": names[0], "total": total}) + "\\n")
        print(user, names[0], total, sep="\\t")
"""


def write_join(desk: Desk) -> list[str]:
    """Users in CSV, orders in Parquet, and the words of a job that joins them."""
    desk.write("users.csv", "id,name\n" + "".join(f'{n},"user, {n}"\n' for n in range(40)))
    orders = [{"user": n % 50, "total": n, "other": "x"} for n in range(300)]
    pq.write_table(pa.Table.from_pylist(orders), desk.cwd / "orders.parquet", row_group_size=50)
    desk.write("users.py", USERS)
    desk.write("orders.py", ORDERS)
    desk.write("join.py", JOIN)
    return [
        *("-input", "users.csv", "-as", "users.py", "csv"),
        *("-input", "orders.parquet", "-as", "orders.py", "parquet", "columns=user,total"),
        *("-reducer", "join.py", "-numReduceTasks", "2", "-output", str(desk.out)),
        *("-D", "mrstream.outputs=strangers,clean:parquet", "-D", "fs.local.block.size=2000"),
    ]


def total_of(user: int) -> int:
    return sum(n for n in range(300) if n % 50 == user)


def test_inputs_with_mappers_and_formats_of_their_own_and_named_outputs(desk: Desk) -> None:
    """MR-37, NU-13, NU-14: a join of CSV and Parquet, split to several files."""
    ran = desk.run(*write_join(desk))

    assert ran.status == 0, ran.stderr
    lines = [line for n in (0, 1) for line in (desk.out / f"part-0000{n}").read_text().splitlines()]
    assert sorted(lines) == sorted(f"{n}\tuser, {n}\t{total_of(n)}" for n in range(40))
    strangers = [(desk.out / "strangers" / f"part-0000{n}").read_text().split() for n in (0, 1)]
    assert sorted(int(user) for part in strangers for user in part) == list(range(40, 50))
    clean = duckdb.sql(f"select sum(total), count(*) from '{desk.out}/clean/*.parquet'").fetchall()
    assert clean == [(sum(map(total_of, range(40))), 40)]
    assert "Named outputs" in ran.stderr


def test_maps_with_named_outputs_and_directories(desk: Desk) -> None:
    """Map tasks too, and a directory that was built locally is committed as it is."""
    desk.write("in", "a\nb\nc\n")
    desk.write(
        "m.py",
        "import os, sys\nout = os.environ['MRSTREAM_OUTPUTS']\nos.makedirs(out + '/index/deep')\n"
        "open(out + '/index/deep/f', 'w').write('deep')\nopen(out + '/seen', 'w').write('x')\n"
        "sys.stdout.writelines(sys.stdin)\n",
    )
    words = ["-mapper", "m.py", "-D", "mrstream.outputs=*"]

    ran = desk.job(*words, "-reducer", "cat")
    assert ran.status == 0, ran.stderr
    found = sorted(str(p.relative_to(desk.out)) for p in desk.out.rglob("*") if p.is_file())
    assert found == ["_SUCCESS", "index/part-m-00000/deep/f", "part-00000", "seen/part-m-00000"]

    desk.out.rename(desk.cwd / "before")
    ran = desk.job(*words, "-reducer", "NONE")
    assert ran.status == 0, ran.stderr
    found = sorted(str(p.relative_to(desk.out)) for p in desk.out.rglob("*") if p.is_file())
    assert found == ["_SUCCESS", "index/part-00000/deep/f", "part-00000", "seen/part-00000"]
    assert desk.left_behind() == []


@pytest.mark.parametrize("reducer", ["NONE", "cat"])
def test_rejects_of_named_outputs_are_counted_with_the_others(desk: Desk, reducer: str) -> None:
    desk.write("in", '{"n": 1}\n{"n": "x"}\n')
    desk.write("m.sh", 'tee "$MRSTREAM_OUTPUTS/rows"\n')

    ran = desk.job(
        *("-mapper", "m.sh", "-reducer", reducer, "-outputformat", "csv"),
        *("-D", "mrstream.output.schema=n:long", "-D", "mrstream.output.rejects=50%"),
        *("-D", "mrstream.outputs=rows:csv", "-D", "mrstream.outputs.rows.schema=n:long"),
    )

    assert ran.status == 0, ran.stderr
    assert "Rejected output records=2" in ran.stderr
    named = "rows/part-00000" if reducer == "NONE" else "rows/part-m-00000"
    for name in ("part-00000", named):
        assert (desk.out / f"{name}.csv").read_text() == "n\n1\n"
        assert '"x" is no long' in (desk.out / "_rejected" / name).read_text()


def test_named_outputs_are_compressed_each_in_its_own_way(desk: Desk) -> None:
    """Its codec packs a file, or the insides of a table; the job's own is of tables alone."""
    desk.write("in", "a\n")
    desk.write(
        "m.sh",
        'cd "$MRSTREAM_OUTPUTS"\necho plain > plain\necho packed > packed\n'
        "for name in rows own; do echo '{\"n\": 1}' > $name; done\n",
    )
    words = ["-mapper", "m.sh", "-reducer", "NONE", "-D"]
    words += ["mrstream.outputs=plain,packed,rows:csv,own:csv"]
    job_wide = ["-D", "mapreduce.output.fileoutputformat.compress=true"]
    job_wide += ["-D", "mapreduce.output.fileoutputformat.compress.codec=BZip2Codec"]

    refused = desk.job(*words, "-D", "mrstream.outputs.packed.codec=NoCodec")
    ran = desk.job(
        *(*words, *job_wide, "-D", "mrstream.outputs.packed.codec=GzipCodec"),
        *("-D", "mrstream.outputs.own.codec=none"),
    )

    assert refused.status == 1 and "NoCodec" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert ran.status == 0, ran.stderr
    found = sorted(str(p.relative_to(desk.out)) for p in desk.out.glob("*/part-*"))
    assert found == [
        *("own/part-00000.csv", "packed/part-00000.gz", "plain/part-00000"),
        "rows/part-00000.csv.bz2",
    ]
    assert gzip.decompress((desk.out / "packed/part-00000.gz").read_bytes()) == b"packed\n"
    assert bz2.decompress((desk.out / "rows/part-00000.csv.bz2").read_bytes()) == b"n\n1\n"


def test_a_task_that_fails_leaves_none_of_its_files(desk: Desk) -> None:
    desk.write("in", "a\n")
    desk.write("m.sh", 'echo x > "$MRSTREAM_OUTPUTS/x"\ncat\nexit 3\n')

    ran = desk.job("-mapper", "m.sh", "-reducer", "NONE", "-D", "mrstream.outputs=x")

    assert ran.status == 1
    assert [path.name for path in desk.out.rglob("*")] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-D", "mrstream.outputs=a/b"], "it must be NAME or NAME:FORMAT"),
        (["-D", "mrstream.outputs=a:xml"], "a format is one of parquet avro arrow csv"),
        (["-D", "mrstream.outputs=other"], "a program wrote the output 'x'"),
        (["-as", "cat", "nope"], "-as : class not found : nope"),
        (["-as", "cat", "csv", "where=a = 1"], "-inputformat csv reads no row filter"),
        (["-as", "cat", "csv", "rubbish"], "it must be a format first, then NAME=VALUE"),
        (["-as", "InverseMapper"], "the mapper of an input is a command"),
    ],
)  # fmt: skip
def test_outputs_and_sources_that_make_no_sense(desk: Desk, words: list[str], says: str) -> None:
    desk.write("in", "a\n")
    desk.write("m.sh", 'echo x > "$MRSTREAM_OUTPUTS/x"\ncat\n')

    ran = desk.run("-input", "in", *words, "-mapper", "m.sh", "-reducer", "NONE", "-output", "o")

    assert ran.status == 1
    assert says in ran.stderr and "Traceback" not in ran.stderr


def test_records_are_partitioned_by_value(desk: Desk) -> None:
    """NU-16: all records of a value meet in one reduce, whatever their keys."""
    lines = [f"{n}\tv{n % 5}" for n in range(100)]
    desk.write("in", "\n".join(lines) + "\n")

    ran = desk.job(
        *("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "3"),
        *("-D", "mrstream.partition.by=value"),
    )

    assert ran.status == 0, ran.stderr
    parts = [(desk.out / f"part-0000{n}").read_text().splitlines() for n in range(3)]
    assert sorted(line for part in parts for line in part) == sorted(lines)
    values = [{line.split("\t")[1] for line in part} for part in parts]
    assert sum(map(len, values)) == 5 and all(part == sorted(part) for part in parts)
    expected = [
        {f"v{n}" for n in range(5) if partition(HashPartition(), b"v%d" % n, 3) == part}
        for part in range(3)
    ]
    assert values == expected


def test_a_field_of_the_value_says_which_reduce(desk: Desk) -> None:
    """NU-16: KeyFieldBasedPartitioner on values; records of one second field meet."""
    lines = [f"{n}\t{n % 9},f{n % 5},{n % 7}" for n in range(100)]
    desk.write("in", "\n".join(lines) + "\n")

    ran = desk.job(
        *("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "3"),
        *("-partitioner", "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner"),
        *("-D", "mrstream.partition.by=value", "-D", "map.output.key.field.separator=,"),
        *("-D", "mapreduce.partition.keypartitioner.options=-k2,2"),
    )

    assert ran.status == 0, ran.stderr
    parts = [(desk.out / f"part-0000{n}").read_text().splitlines() for n in range(3)]
    assert sorted(line for part in parts for line in part) == sorted(lines)
    fields = [{line.split(",")[1] for line in part} for part in parts]
    assert sorted(field for part in fields for field in part) == [f"f{n}" for n in range(5)]
    assert sum(map(bool, fields)) > 1


def test_cut_points_of_values_say_which_reduce(desk: Desk) -> None:
    """NU-16: a total order of the values over all parts, sorted by key within each."""
    lines = [f"{n:03d}\tv{n % 10}" for n in range(100)]
    desk.write("in", "\n".join(lines) + "\n")
    with open(desk.cwd / "cuts", "wb") as file:
        writer = sequence_file_writer(file.write, TEXT, NULL)
        for cut in (b"v3", b"v7"):
            writer.append(cut, b"")
        writer.close()

    ran = desk.job(
        *("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "3"),
        *("-partitioner", "org.apache.hadoop.mapred.lib.TotalOrderPartitioner"),
        *("-D", "mrstream.partition.by=value"),
        *("-D", "mapreduce.totalorderpartitioner.path=cuts"),
    )

    assert ran.status == 0, ran.stderr
    parts = [(desk.out / f"part-0000{n}").read_text().splitlines() for n in range(3)]
    for part, digits in zip(parts, ("012", "3456", "789"), strict=True):
        assert part == [line for line in lines if line[-1] in digits]


def test_values_are_ordered_as_numbers_in_the_reduce_that_they_name(desk: Desk) -> None:
    """NU-01, NU-16: both at once; the largest value of a key comes first."""
    lines = [f"k{n % 3}\t{n % 11}" for n in range(100)]
    desk.write("in", "\n".join(lines) + "\n")

    ran = desk.job(
        *("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "2"),
        *("-D", "mrstream.sort.values=true", "-D", "mrstream.partition.by=value"),
        *("-D", "mapreduce.job.output.key.comparator.class=KeyFieldBasedComparator"),
        *("-D", "mapreduce.partition.keycomparator.options=-k1,1 -k2,2nr"),
        *("-D", "stream.reduce.output=keyonlytext"),
    )

    assert ran.status == 0, ran.stderr
    parts = [(desk.out / f"part-0000{n}").read_text().splitlines() for n in range(2)]
    assert sorted(line for part in parts for line in part) == sorted(lines)
    for part in parts:
        pairs = [(key, -int(value)) for key, value in (line.split("\t") for line in part)]
        assert pairs == sorted(pairs)
    values = [{line.split("\t")[1] for line in part} for part in parts]
    assert all(values) and not values[0] & values[1]


def test_the_values_of_a_key_come_in_order(desk: Desk) -> None:
    """NU-01: all values of a key are reduced together, in order; one property asks for it."""
    lines = [f"k{n % 3}\t{(n * 7919) % 1000:03d}" for n in range(300)]
    desk.write("in", "\n".join(lines) + "\n")

    ran = desk.job(
        *("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "2"),
        *("-D", "mrstream.sort.values=true", "-D", "stream.reduce.output=keyonlytext"),
    )

    assert ran.status == 0, ran.stderr
    parts = [(desk.out / f"part-0000{n}").read_text().splitlines() for n in range(2)]
    assert sorted(line for part in parts for line in part) == sorted(lines)
    assert all(part == sorted(part) for part in parts)
    keys = [{line.split("\t")[0] for line in part} for part in parts]
    assert not keys[0] & keys[1]


def test_a_combiner_and_values_that_decide_are_refused(desk: Desk) -> None:
    desk.write("in", "a\t1\n")
    for setting in ("mrstream.partition.by=value", "mrstream.sort.values=true"):
        ran = desk.job("-mapper", "cat", "-reducer", "cat", "-combiner", "cat", "-D", setting)

        assert ran.status == 1 and "a combiner makes others of them" in ran.stderr


def test_several_copies_of_a_map_wait_side_by_side(desk: Desk) -> None:
    """NU-15: each copy waits until all four run; one after the other they would wait for ever."""
    lines = [f"line {n} " + "x" * 50 for n in range(400)]
    desk.write("in", "\n".join(lines) + "\n")
    meeting = desk.cwd / "meeting"
    meeting.mkdir()
    desk.write(
        "m.py",
        "import os, sys, time\n"
        f"room = {str(meeting)!r}\nfirst = sys.stdin.readline()\n"
        "open(f'{room}/{os.getpid()}', 'w').close()\n"
        "while len(os.listdir(room)) < 4:\n    time.sleep(0.01)\n"
        "sys.stdout.write(first)\nsys.stdout.writelines(sys.stdin)\n",
    )

    ran = desk.job("-mapper", "m.py", "-reducer", "NONE", "-D", "mrstream.map.concurrency=4")

    assert ran.status == 0, ran.stderr
    found = (desk.out / "part-00000").read_text().replace("\t\n", "\n").splitlines()
    assert sorted(found) == sorted(lines)
    assert "Map input records=400" in ran.stderr and "Map output records=400" in ran.stderr


def test_one_copy_that_fails_fails_the_map(desk: Desk) -> None:
    desk.write("in", "".join(f"{n} {'x' * 100}\n" for n in range(500)))
    desk.write("m.py", "import sys\nfor line in sys.stdin:\n    if line.startswith('333 '):\n"
               "        sys.exit(7)\n    sys.stdout.write(line)\n")  # fmt: skip

    ran = desk.job("-mapper", "m.py", "-reducer", "NONE", "-D", "mrstream.map.concurrency=3")

    assert ran.status == 1
    assert "7" in ran.line("subprocess failed with code")
    assert desk.left_behind() == []


def test_protocol_buffers_are_read_by_their_descriptors(desk: Desk) -> None:
    desk.write("t.desc", descriptors())
    desk.write("rows.pb", delimited([{"user_id": n, "name": f"n{n}"} for n in range(20)]))
    words = ["-input", "rows.pb", "-mapper", "cat", "-reducer", "NONE", "-inputformat"]

    ran = desk.run(*words, "proto:t.desc:t.Row")
    bad = desk.run(*words, "proto:nope.desc:t.Row")

    assert ran.status == 0, ran.stderr
    assert lines_of(ran.stdout)[3] == {"user_id": "3", "name": "n3"}
    assert bad.status == 1 and "nope.desc" in bad.line("-inputformat proto")


NUMBERS = """
import sys
verb, *words = sys.argv[1:]
if verb == "splits":
    for word in words:
        for start in range(0, int(word), 10):
            print(f"from {start}, it's", 10, sep="\\t")
else:
    start = int(words[0].split()[1].rstrip(","))
    if start == 30 and "fail" in sys.argv[0]:
        sys.exit(5)
    for number in range(start, start + 10):
        print(number)
"""


@pytest.mark.parametrize("words", [["-mapper", "cat"], ["-io", "typedbytes", "-mapper", "cat"], []])
def test_a_program_lists_the_splits_and_gives_the_records(desk: Desk, words: list[str]) -> None:
    """MR-29: a reader that is not of files; its maps run it where they are."""
    desk.write("bin/numbers.py", NUMBERS)

    ran = desk.run(
        *("-input", "40", "-input", "20", "-inputformat", "program:bin/numbers.py"),
        *("-reducer", "NONE", *words),
    )

    assert ran.status == 0, ran.stderr
    assert "number of splits:6" in ran.stderr and "Map input records=60" in ran.stderr
    if "-io" not in words:
        lines = ran.stdout.decode().replace("\t\n", "\n").splitlines()
        found = sorted(int(line.split("\t")[-1]) for line in lines)
        assert found == sorted([*range(40), *range(20)])


def test_a_program_is_one_of_several_inputs(desk: Desk) -> None:
    """MR-29, MR-37: beside CSV, each with a mapper of its own."""
    desk.write("numbers.py", NUMBERS)
    desk.write("names.csv", "id,name\n3,three\n12,twelve\n")
    desk.write("names.py", JSON + "print(row['id'], row['name'], sep='\\t')\n")

    ran = desk.run(
        *("-input", "20", "-as", "cat", "program:numbers.py"),
        *("-input", "names.csv", "-as", "names.py", "csv", "-reducer", "cat"),
    )

    assert ran.status == 0, ran.stderr
    lines = sorted(ran.stdout.decode().splitlines())
    assert lines == sorted([*(f"{n}\t" for n in range(20)), "3\tthree", "12\ttwelve"])


@pytest.mark.parametrize("io", ["text", "rawbytes"])
def test_the_records_of_an_archive(desk: Desk, io: str) -> None:
    """The key is the target; headers and payload are base64 in lines, and as they are in bytes."""
    payloads = {f"http://host/{n}": b"\r\n\0\xff\t%d\n" % n * 40 for n in range(30)}
    with open(desk.cwd / "f.warc.gz", "wb") as out:
        writer = WARCWriter(out, gzip=True)
        for target, payload in payloads.items():
            record = writer.create_warc_record(target, "resource", payload=BytesIO(payload))
            writer.write_record(record)

    ran = desk.run(
        *("-input", "f.warc.gz", "-inputformat", "warc", "-io", io, "-mapper", "cat"),
        *("-reducer", "NONE", "-D", "fs.local.block.size=1000", "-output", str(desk.out)),
        *("-outputformat", "SequenceFileOutputFormat"),
    )

    assert ran.status == 0, ran.stderr
    assert "number of splits:1\n" not in ran.stderr
    found = {}
    for part in sorted(desk.out.glob("part-*")):
        with part.open("rb") as file:
            found |= dict(SequenceFileReader(file))
    values = [base64.b64decode(v) if io == "text" else v for _, v in sorted(found.items())]
    assert len(values) == 30
    assert sorted(value.partition(b"\r\n\r\n")[2] for value in values) == sorted(payloads.values())


def test_an_input_program_that_fails_fails_what_it_was_asked_for(desk: Desk) -> None:
    desk.write("fail.py", NUMBERS)
    words = ["-mapper", "cat", "-reducer", "NONE", "-inputformat"]

    reading = desk.run("-input", "40", *words, "program:fail.py")
    listing = desk.run("-input", "forty", *words, "program:fail.py")
    rubbish = desk.run("-input", "db://any/words", *words, "program:echo a\tb")

    assert reading.status == 1 and "subprocess failed with code 5" in reading.stderr
    assert listing.status == 1 and "`fail.py splits` ended with status 1" in listing.stderr
    assert rubbish.status == 1 and "a number of bytes behind a TAB" in rubbish.stderr
