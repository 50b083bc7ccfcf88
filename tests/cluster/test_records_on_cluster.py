"""A join of CSV and Parquet on a cluster, with named outputs and rejects, while workers die.

Every file of a task is there once, or none of it (MR-29, MR-37, NU-13, NU-14).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.job_faults import NO_BACKUPS, ROLES, ROOM_DFS, SLOTS, WORKER, JobRoom, RunningJob
from tests.cluster.local import LocalCluster
from tests.cluster.preludes import STOPS

USERS = """
import json, os, sys
seen = open(os.environ["MRSTREAM_OUTPUTS"] + "/seen", "w")
assert os.environ["mrstream_input_index"] == "0"
for line in sys.stdin:
    row = json.loads(line)
    seen.write(row["id"] + "\\n")
    print(row["id"], "name=" + json.dumps(row["name"]), sep="\\t")
"""
ORDERS = """
import json, os, sys
assert os.environ["mrstream_input_index"] == "1"
for line in sys.stdin:
    row = json.loads(line)
    assert list(row) == ["user", "total"]
    print(row["user"], row["total"], sep="\\t")
"""
JOIN = """
import json, os, sys
from itertools import groupby
outputs = os.environ["MRSTREAM_OUTPUTS"]
os.makedirs(outputs + "/index/deep")
strangers = open(outputs + "/strangers", "w")
clean = open(outputs + "/clean", "w")
count = 0
for user, group in groupby(sys.stdin, key=lambda line: line.split("\\t")[0]):
    values = [line.rstrip("\\n").split("\\t", 1)[1] for line in group]
    names = [json.loads(value[5:]) for value in values if value.startswith("name=")]
    total = sum(int(value) for value in values if not value.startswith("name="))
    count += 1
    if not names:
        strangers.write(user + "\\n")
        continue
    odd = int(user) % 10 == 3
    clean.write(json.dumps({"name": names[0], "total": "odd" if odd else total}) + "\\n")
    print(json.dumps({"user": int(user), "total": total}))
open(outputs + "/index/deep/count", "w").write(str(count))
"""
WORDS = (
    *("-input", "/users.csv", "-as", "users.py", "csv", "-input", "/orders", "-as", "orders.py"),
    *("parquet", "columns=user,total", "-reducer", "join.py", "-numReduceTasks", "2"),
    *("-outputformat", "avro", "-D", "mrstream.output.schema=user:int,total:long"),
    *("-D", "mrstream.outputs=seen,strangers,index,clean:parquet"),
    *("-D", "mrstream.outputs.clean.schema=name:string,total:long"),
    *("-D", "mrstream.output.rejects=20%", "-D", "mapreduce.job.maps=4", *NO_BACKUPS),
    *("-output", "/out"),
)
INPUTS = ("users.csv", "orders")
TABLES = (
    *(("", ".avro"), ("clean/", ".parquet"), ("index/", "/deep/count")),
    *(("strangers/", ""), ("_rejected/clean/", "")),
)
"""What reduces write: the directory, and how the files' names end."""
# Behind a commit, before the worker can report it; apart for maps and reduces.
COMMITS = """
from mrstream.mapreduce.worker.job_here import JobHere
whole = JobHere.commit
def commit(self, attempt_id, *words):
    committed = whole(self, attempt_id, *words)
    stop_at("a map's commit" if "_m_" in attempt_id else "a reduce's commit")
    return committed
JobHere.commit = commit
"""


class RecordsRoom(JobRoom):
    """A cluster whose workers can be stopped behind a commit, with both inputs in its dfs."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        # Without the input of other jobs, and what they must give.
        self.cluster, self.directory, self.preludes = cluster, directory, {}
        for name, code in (("users.py", USERS), ("orders.py", ORDERS), ("join.py", JOIN)):
            (directory / name).write_text(code)
        users = "".join(f'{n},"user\n{n}, ""quoted"""\n' for n in range(400))
        (directory / "users.csv").write_text("id,name\n" + users)
        orders = [{"user": n % 450, "total": n, "other": "x" * 20} for n in range(5000)]
        pq.write_table(pa.Table.from_pylist(orders), directory / "orders", row_group_size=500)
        put = cluster.mrstream("dfs", "-put", *(str(directory / n) for n in INPUTS), "/")
        assert put.returncode == 0, put.stderr
        self.restart_with(STOPS.format(shared=cluster.shared) + COMMITS, WORKER)

    def kill_at(self, stage: str, job: RunningJob) -> None:
        """Kill the worker of the first task that comes there; all others go on."""
        self.cluster.kill(WORKER, self.arrival(stage, job).host)
        self.send_on(stage)

    def files(self, output: str) -> dict[str, Any]:
        """The files of an output by their paths below it: records of tables, bytes of others."""
        copy = self.directory / "copy"
        got = self.cluster.mrstream("dfs", "-get", output, str(copy))
        assert got.returncode == 0, got.stderr
        return {str(p.relative_to(copy)): content(p) for p in copy.rglob("*") if p.is_file()}


@pytest.fixture
def room(tmp_path: Path) -> Iterator[RecordsRoom]:
    with LocalCluster(
        tmp_path, 3, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS, extras=("records",)
    ) as cluster:
        yield RecordsRoom(cluster, tmp_path)


def content(path: Path) -> Any:
    if path.suffix == ".avro":
        with path.open("rb") as file:
            return list(fastavro.reader(file))
    return pq.read_table(path).to_pylist() if path.suffix == ".parquet" else path.read_bytes()


def test_a_join_with_named_outputs_while_workers_die_between_commit_and_report(
    room: RecordsRoom,
) -> None:
    """A worker dies with a map that committed its named output, and another with a reduce that
    committed five files and its rejects. Neither commit is known to the master: other attempts do
    both tasks again, and what they commit takes the place of all that lay there."""
    stages = ("a map's commit", "a reduce's commit")
    for stage in stages:
        room.stop_at(stage)
    job = RunningJob(room.cluster, "join", WORDS)
    for stage in stages:
        room.kill_at(stage, job)
    ended = job.wait()

    assert ended.status == 0, ended.stderr
    found = room.files("/out")
    maps = sorted(name for name in found if name.startswith("seen/part-m-"))
    tables = {name: [f"{name}part-0000{n}{suffix}" for n in (0, 1)] for name, suffix in TABLES}
    assert sorted(found) == sorted(["_SUCCESS", *maps, *itertools.chain(*tables.values())])
    assert sorted(map(int, b"".join(found[name] for name in maps).split())) == list(range(400))

    def all_of(name: str) -> list[Any]:
        return [each for path in tables[name] for each in found[path]]

    totals = {user: sum(n for n in range(5000) if n % 450 == user) for user in range(450)}
    joined = sorted((row["user"], row["total"]) for row in all_of(""))
    assert joined == [(n, totals[n]) for n in range(400)]
    assert sorted((row["name"], row["total"]) for row in all_of("clean/")) == sorted(
        (f'user\n{n}, "quoted"', totals[n]) for n in range(400) if n % 10 != 3
    )
    strangers = b"".join(found[path] for path in tables["strangers/"]).split()
    assert sorted(map(int, strangers)) == list(range(400, 450))
    assert sum(int(found[path]) for path in tables["index/"]) == 450
    rejected = b"".join(found[path] for path in tables["_rejected/clean/"])
    assert len(rejected.splitlines()) == 40 and b'"odd" is no long' in rejected
