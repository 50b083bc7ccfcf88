"""Records of other formats against what a user would write straight: pyarrow and json, text.

Parquet: our reader's JSON lines against `json.dumps` of each row that pyarrow gives. CSV: a job
over it against the same job over the same bytes as text. Small files, so that imports count too.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests.benchmarks.common import MRSTREAM, Row, Run, interleaved, run, workplace

ROWS = 300_000
CSV_ROWS = 2_000_000

OURS = """
import sys
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import plan_splits
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf
source, target = sys.argv[1:]
conf = JobConf({"mapred.input.format.class": "parquet"})
files = RoutedFiles("file:///")
with open(target, "wb", buffering=0) as out:
    for split in plan_splits(conf, [source], files).splits:
        for blob in SplitReader(split, conf, files):
            out.write(blob)
"""
STRAIGHT = """
import json, sys
import pyarrow.parquet as pq
source, target = sys.argv[1:]
with open(target, "w") as out:
    for batch in pq.ParquetFile(source).iter_batches():
        for row in batch.to_pylist():
            out.write(json.dumps(row) + "\\n")
"""


def bench() -> list[Row]:
    """Ratios are the peer's time over ours."""
    with workplace() as place:
        return [_parquet(place), *_csv(place)]


def _table(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = random.Random(1)
    table = pa.table(
        {
            "id": list(range(ROWS)),
            "name": [f"name {chance.randrange(10**6)}" for _ in range(ROWS)],
            "city": [chance.choice(["Oslo", 'the "Hague"', "Köln", None]) for _ in range(ROWS)],
            "fare": [chance.random() * 100 for _ in range(ROWS)],
            "paid": [chance.random() < 0.5 for _ in range(ROWS)],
        }
    )
    pq.write_table(table, path)


def _parquet(place: Path) -> Row:
    source = place / "rows.parquet"
    _table(source)

    def contender(code: str) -> Run:
        return run([sys.executable, "-c", code, str(source), str(place / "lines")], place)

    found = interleaved({"ours": lambda: contender(OURS), "peer": lambda: contender(STRAIGHT)})
    rate = ROWS / 1000
    return Row(
        "Parquet to JSON lines, against pyarrow + json",
        rate / found["ours"].cpu_s,
        rate / found["peer"].cpu_s,
        "krows/s",
        "≥ 0.8",
    )


def _csv(place: Path) -> list[Row]:
    source = place / "rows.csv"
    chance = random.Random(1)
    with open(source, "w") as out:
        out.write("id,name,city,fare\n")
        for number in range(CSV_ROWS):
            city = chance.choice(["Oslo", '"the ""Hague"", NL"', "Köln", ""])
            name = f"name {chance.randrange(10**6)} of a customer"
            out.write(f"{number},{name},{city},{chance.random() * 100}\n")
    words = ["-input", str(source), "-output"]
    targets = iter(str(place / f"out{n}") for n in range(100))
    found = interleaved(
        {
            **{
                form: lambda form=form: _job(
                    *(place, *words, next(targets), "-inputformat", "csv"),
                    *("-D", f"mrstream.input.lines={form}"),
                )
                for form in ("json", "tsv")
            },
            "peer": lambda: _job(place, *words, next(targets)),
        }
    )
    size = source.stat().st_size / 1e6
    return [
        Row(
            f"CSV to {form} lines through cat, against text",
            size / found[form].wall_s,
            size / found["peer"].wall_s,
            "MB/s",
            "≥ 0.5",
        )
        for form in ("json", "tsv")
    ]


def _job(place: Path, *words: str) -> Run:
    return run([MRSTREAM, "-jt", "local", "-mapper", "cat", "-reducer", "NONE", *words], place)
