"""pandas, pyarrow, polars and DuckDB read and write `dfs://`, each in the way the guide says."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import fsspec
import pandas
import polars
import pyarrow
import pytest
from pyarrow import csv, dataset, parquet

from mrstream.dfs.client.filesystem import DfsFileSystem
from tests.cluster.local import LocalCluster

ROWS = 10_000
COLUMNS = {"n": list(range(ROWS)), "word": [f"row {number}, ünï" for number in range(ROWS)]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    # Chunks of 64 KiB, so that every file here has several.
    with LocalCluster(tmp_path_factory.mktemp("dfs"), 2, dfs={"chunk_size": "64KiB"}) as running:
        yield running


@pytest.fixture
def fs(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> DfsFileSystem:
    """The file system of the current cluster, as the libraries find it by itself."""
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    DfsFileSystem.clear_instance_cache()
    found: DfsFileSystem = fsspec.filesystem("dfs")
    return found


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "json"])
def test_pandas_takes_urls_as_they_are(fs: DfsFileSystem, suffix: str) -> None:
    """Both ways, by the suffix of the path."""
    table = pandas.DataFrame(COLUMNS)
    url = f"dfs:///pandas/table.{suffix}"
    fs.makedirs("/pandas", exist_ok=True)

    if suffix == "parquet":
        table.to_parquet(url)
        back = pandas.read_parquet(url)
    elif suffix == "json":
        table.to_json(url, orient="records", lines=True)
        back = pandas.read_json(url, lines=True)
    else:
        table.to_csv(url, index=False)
        back = pandas.read_csv(url)

    pandas.testing.assert_frame_equal(back, table, check_dtype=False)


def test_pandas_appends_to_a_csv_and_reads_a_part_of_it(fs: DfsFileSystem) -> None:
    """`mode="a"` goes on at the end; `nrows` and `chunksize` read no further than they must."""
    table = pandas.DataFrame(COLUMNS)
    table.to_csv("dfs:///appended.csv", index=False)

    table.to_csv("dfs:///appended.csv", index=False, header=False, mode="a")

    assert len(pandas.read_csv("dfs:///appended.csv")) == 2 * ROWS
    assert pandas.read_csv("dfs:///appended.csv", nrows=3)["n"].tolist() == [0, 1, 2]
    pieces = pandas.read_csv("dfs:///appended.csv", chunksize=ROWS)
    assert [piece["n"].sum() for piece in pieces] == [sum(COLUMNS["n"])] * 2


def test_pyarrow_takes_the_file_system(fs: DfsFileSystem) -> None:
    """Single files, one column of some row groups, CSV through open files."""
    table = pyarrow.table(COLUMNS)

    parquet.write_table(table, "/arrow.parquet", filesystem=fs, row_group_size=1000)
    with fs.open("/arrow.csv", "wb") as file:
        csv.write_csv(table, file)

    assert parquet.read_table("/arrow.parquet", filesystem=fs) == table
    some = parquet.read_table(
        "/arrow.parquet", filesystem=fs, columns=["word"], filters=[("n", ">=", ROWS - 2)]
    )
    assert some.to_pydict() == {"word": COLUMNS["word"][-2:]}
    with fs.open("/arrow.parquet", "rb") as file:
        assert parquet.ParquetFile(file).read_row_group(3).num_rows == 1000
    with fs.open("/arrow.csv", "rb") as file:
        assert csv.read_csv(file) == table


def test_pyarrow_writes_and_reads_a_partitioned_dataset(fs: DfsFileSystem) -> None:
    """Directories are made, listed and filtered through the master."""
    table = pyarrow.table({**COLUMNS, "part": [number % 4 for number in range(ROWS)]})
    hive = dataset.partitioning(pyarrow.schema([("part", pyarrow.int64())]), flavor="hive")

    dataset.write_dataset(table, "/set", format="parquet", partitioning=hive, filesystem=fs)

    assert sorted(name.rpartition("/")[2] for name in fs.ls("/set", detail=False)) == [
        f"part={number}" for number in range(4)
    ]
    back = dataset.dataset("/set", filesystem=fs, partitioning=hive)
    assert back.count_rows() == ROWS
    assert back.count_rows(filter=dataset.field("part") == 3) == ROWS // 4


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_polars_takes_open_files(fs: DfsFileSystem, form: str) -> None:
    """Its own URLs are object stores only; a part is read with `columns` and `n_rows`."""
    table = polars.DataFrame(COLUMNS)
    write, read = {
        "csv": (table.write_csv, polars.read_csv),
        "parquet": (table.write_parquet, polars.read_parquet),
    }[form]

    with fs.open(f"/polars.{form}", "wb") as file:
        write(file)

    with fs.open(f"/polars.{form}", "rb") as file:
        assert read(file).equals(table)
    with fs.open(f"/polars.{form}", "rb") as file:
        assert read(file, columns=["n"], n_rows=3).to_dict(as_series=False) == {"n": [0, 1, 2]}


def test_polars_scans_a_dataset_lazily(fs: DfsFileSystem) -> None:
    """Through pyarrow, with the filter pushed down."""
    parquet.write_table(pyarrow.table(COLUMNS), "/lazy.parquet", filesystem=fs)

    lazy = polars.scan_pyarrow_dataset(dataset.dataset("/lazy.parquet", filesystem=fs))

    found = lazy.filter(polars.col("n") < 2).select("word").collect()
    assert found["word"].to_list() == COLUMNS["word"][:2]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_duckdb_takes_urls_once_the_file_system_is_registered(fs: DfsFileSystem, form: str) -> None:
    """COPY TO, SELECT FROM, and globs served by the master."""
    fs.makedirs(f"/duck/{form}")
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        for half in (0, 1):
            query = f"SELECT range AS n, 'row ' || range AS word FROM range({half * 500}, 1000)"
            connection.execute(f"COPY ({query}) TO 'dfs:///duck/{form}/{half}.{form}'")

        whole = connection.execute(f"SELECT count(*), sum(n) FROM 'dfs:///duck/{form}/0.{form}'")
        assert whole.fetchall() == [(1000, 499_500)]
        some = connection.execute(
            f"SELECT word FROM 'dfs:///duck/{form}/*.{form}' WHERE n = 700 ORDER BY word"
        )
        assert some.fetchall() == [("row 700",)] * 2
