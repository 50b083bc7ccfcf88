"""Sawzall on a cluster: three hosts as processes of this machine, input and shards in the dfs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.client.records import RecordAppender
from mrstream.mapreduce.flow.dfs_book import DfsFlowBook
from mrstream.mapreduce.job import saw_protos
from mrstream.streaming.formats.proto_rows import message_class
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster, wait_for
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
    settings = {"chunk_size": "1MiB"}
    with LocalCluster(directory, 3, roles=ROLES, dfs=settings, slots=2, extras=("saw",)) as running:
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


CHAIN = {
    "log.proto": 'syntax = "proto3"; message Hit { string page = 1; int64 bytes = 2; }',
    "count.szl": """proto "log.proto"
n: table sum[page: string] of int;
hit: Hit = input;
emit n[hit.page] <- hit.bytes;
""",
    "best.szl": """best: table maximum(2) of page: string weight n: int;
f: array of string = splitcsvline(input);
emit best <- f[1] weight int(f[2]);
""",
    "flow.yaml": """name: best pages
steps:
  counts:
    input: /hits
    inputformat: RecordAppendInputFormat
    mapper: saw:count.szl
    reducer: saw:count.szl
    numReduceTasks: 3
  best:
    input: ${counts}
    inputformat: saw
    mapper: saw:best.szl
    reducer: saw:best.szl
    output: /best
""",
}


def test_a_chain_over_messages_goes_on_without_its_client(cluster: LocalCluster) -> None:
    """SZ-19, SZ-26: programs and what `proto` describes travel with a detached flow."""
    for name, text in CHAIN.items():
        (cluster.directory / name).write_text(text)
    descriptors = saw_protos.compiled(["log.proto"], str(cluster.directory / "count.szl"))
    message = message_class(descriptors["log.proto"], "Hit")
    good(cluster, "dfs", "-touchz", "/hits")
    appender = RecordAppender(cluster.client(), "/hits")
    for number in range(60):
        hit = message(page=f"/{number % 7},x", bytes=number)
        appender.append_record(hit.SerializeToString(), number.to_bytes(16, "big"))

    flow_id = good(cluster, "flow", "run", "flow.yaml", "--detach").strip()
    for name in CHAIN:
        (cluster.directory / name).unlink()
    book = DfsFlowBook(flow_id, cluster.client())
    wait_for(lambda: book.read_state().ended_at_s > 0, 120.0, "the flow to end")

    assert book.read_state().state == "succeeded", book.read_state().reason
    sums = Counter[str]()
    for number in range(60):
        sums[f"/{number % 7},x"] += number
    truth = sums.most_common(2)
    assert good(cluster, "dump", "--source", "/best") == "".join(
        f'best,"{page}",{n}\n' for page, n in truth
    )
