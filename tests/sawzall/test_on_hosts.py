"""Sawzall on a cluster: three hosts as processes of this machine, input and shards in the dfs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.client.records import RecordAppender
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster
from tests.sawzall.sawzall_cases import CASES, FOLDER

ON_HOSTS = [
    "02_minute_of_week",
    "03_max_page_per_domain",
    "09_collection_and_set",
    "11_quantile",
    "13_unique",
    "15_undefined_stops",
    "16_undefined_skipped",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("sawzall")
    with LocalCluster(directory, 3, roles=ROLES, dfs={"chunk_size": "1MiB"}) as running:
        put = running.mrstream("dfs", "-put", str(FOLDER), "/cases")
        assert put.returncode == 0, put.stderr
        yield running


def good(cluster: LocalCluster, *words: str) -> str:
    """Run `mrstream`; it must succeed."""
    done = cluster.mrstream(*words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("name", ON_HOSTS)
def test_a_case_gives_on_hosts_what_it_gives_here(cluster: LocalCluster, name: str) -> None:
    """SZ-15, SZ-16."""
    case = CASES[name]

    ran = cluster.mrstream(
        *("saw", "--program", str(case.program), "--input_files", f"/cases/{name}/input"),
        *("--destination", f"/out/{name}@3", *case.words),
    )

    if case.is_refused:
        assert ran.returncode == 1
        assert f"program.szl:{case.expected.strip()}" in ran.stderr.decode()
        return
    assert ran.returncode == 0, ran.stderr.decode()
    assert good(cluster, "dump", "--source", f"/out/{name}@3") == case.expected


def test_records_of_record_append_are_read_once(cluster: LocalCluster, tmp_path: Path) -> None:
    """SZ-26, GFS §3.3: what appenders left, without padding and duplicates."""
    client = cluster.client()
    good(cluster, "dfs", "-touchz", "/appended")
    appender = RecordAppender(client, "/appended")
    for number in range(300):
        identity = (number % 200).to_bytes(16, "big")
        appender.append_record(b"%d,%s" % (number % 200, b"x" * 9000), identity)
    program = tmp_path / "p.szl"
    program.write_text(
        "n: table sum of int;\nt: table sum of int;\n"
        "f: array of string = splitcsvline(input);\nemit n <- 1;\nemit t <- int(f[0]);\n"
    )

    good(
        cluster,
        *("saw", "--program", str(program), "--input_files", "/appended"),
        *("--input_format", "records", "--destination", "/out/appended@2", "--machines", "2"),
    )

    assert good(cluster, "dump", "--source", "/out/appended@2") == f"n,200\nt,{sum(range(200))}\n"
