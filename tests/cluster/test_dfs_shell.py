"""`mrstream dfs` as a user runs it: verbs, output and exit status of `hdfs dfs`."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrstream.dfs import cli
from mrstream.dfs.chunks.replica_files import path_of
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.shell.progress import Progress
from tests.cluster.local import CHUNKSERVER, LocalCluster, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("shell"), 2) as running:
        yield running


class Terminal:
    """Runs verbs in this process and remembers what they printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def __call__(self, *words: str, stdin: bytes = b"") -> Any:
        out, error = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with self._patch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", error)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            status = cli.main(list(words))
            out.flush()
        self.out: str = out.buffer.getvalue().decode("utf-8", "surrogateescape")  # type: ignore[attr-defined]
        self.error = error.getvalue()
        return status


@pytest.fixture
def run(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    monkeypatch.setenv("USER", "tester")
    monkeypatch.setenv("LOGNAME", "tester")
    terminal = Terminal(monkeypatch)
    assert terminal("-mkdir", "-p", "/user/tester") == 0
    yield terminal
    terminal("-rm", "-r", "-f", "-skipTrash", "/user/tester", "/w")


def test_ls_prints_hadoop_s_columns(run: Terminal, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1366)
    run("-mkdir", "/w", "/w/dir")
    run("-put", str(tmp_path / "f"), "/w/file")

    assert run("-ls", "/w") == 0

    lines = run.out.splitlines()
    assert lines[0] == "Found 2 items"
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(rf"drwxr-xr-x   - tester tester          0 {time} /w/dir", lines[1])
    assert re.fullmatch(rf"-rw-r--r--   2 tester tester       1366 {time} /w/file", lines[2])
    assert run("-ls", "-C", "/w") == 0
    assert run.out == "/w/dir\n/w/file\n"
    assert run("-ls", "-h", "/w/file") == 0
    assert "     1.3 K " in run.out
    assert run("-ls", "-d", "/w") == 0
    assert run.out.endswith(" /w\n")


def test_ls_goes_into_directories_and_sorts(run: Terminal, tmp_path: Path) -> None:
    tree = tmp_path / "t"
    (tree / "sub").mkdir(parents=True)
    (tree / "b").write_bytes(b"bb")
    (tree / "sub" / "a").write_bytes(b"a")
    run("-put", str(tree), "/w")

    run("-ls", "-R", "-C", "/w")
    assert run.out == "/w/b\n/w/sub\n/w/sub/a\n"
    run("-ls", "-S", "-C", "/w")
    assert run.out == "/w/b\n/w/sub\n"
    run("-ls", "-r", "-C", "/w")
    assert run.out == "/w/sub\n/w/b\n"


def test_errors_are_worded_and_counted_as_in_hadoop(run: Terminal, tmp_path: Path) -> None:
    run("-mkdir", "/w")
    run("-put", "-", "/w/f", stdin=b"x")

    for words, said in (
        (("-ls", "/none"), "ls: `/none': No such file or directory"),
        (("-cat", "/none"), "cat: `/none': No such file or directory"),
        (("-cat", "/w"), "cat: `/w': Is a directory"),
        (("-mkdir", "/w"), "mkdir: `/w': File exists"),
        (("-mkdir", "/a/b"), "mkdir: `/a/b': No such file or directory"),
        (("-rm", "/w"), "rm: `/w': Is a directory"),
        (("-rm", "/none"), "rm: `/none': No such file or directory"),
        (("-rmdir", "/w"), "rmdir: `/w': Directory is not empty"),
        (("-mv", "/none", "/w"), "mv: `/none': No such file or directory"),
        (("-put", str(tmp_path / "none"), "/w"), "No such file or directory"),
        (("-put", "-", "/w/f"), "put: `/w/f': File exists"),
        (("-get", "/none", str(tmp_path)), "get: `/none': No such file or directory"),
        (("-touchz", "/w/f"), "touchz: `/w/f': Not a zero-length file"),
        (("-ls", "none"), "ls: `none': No such file or directory"),
    ):
        assert run(*words) == 1, words
        assert said in run.error, words


def test_wrong_usage_shows_the_usage(run: Terminal) -> None:
    assert run("-nonsense") == 255
    assert "-nonsense: Unknown command" in run.error
    assert run("-ls", "-z") == 255
    assert run.error.startswith("-ls: Illegal option -z\nUsage: mrstream dfs")
    assert run("-mv", "/a") == 255
    assert "Not enough arguments: expected 2 but got 1" in run.error
    assert run() == 255


def test_the_dash_is_optional_and_help_covers_every_verb(run: Terminal) -> None:
    assert run("ls", "/") == 0
    assert run("-help") == 0
    for verb in (
        "ls", "put", "get", "copyFromLocal", "copyToLocal", "cat", "mkdir", "rm", "rmdir", "mv",
        "cp", "du", "df", "stat", "tail", "head", "test", "touchz", "getmerge", "setrep",
        "count", "checksum", "text", "find", "appendToFile", "chmod", "chown", "chgrp",
        "expunge", "undelete", "snapshot", "fsck", "setQuota", "setSpaceQuota", "clrQuota",
        "clrSpaceQuota",
    ):  # fmt: skip
        assert f"-{verb} " in run.out
    assert run("-usage", "ls") == 0
    assert run.out.startswith("Usage: mrstream dfs [generic options] -ls ")


def test_put_and_get_of_trees(run: Terminal, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name, size in (("a", 0), ("b/c", 3_000_000), ("b/d/e", 17)):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(os.urandom(size))
    (tree / "empty").mkdir()

    assert run("-put", str(tree), "/w") == 0
    assert run("-get", "/w", str(tmp_path / "back")) == 0

    found = sorted(p.relative_to(tmp_path / "back") for p in (tmp_path / "back").rglob("*"))
    assert found == sorted(p.relative_to(tree) for p in tree.rglob("*"))
    assert (tmp_path / "back/b/c").read_bytes() == (tree / "b/c").read_bytes()
    assert run("-put", str(tree), "/w") == 0
    assert run("-test", "-f", "/w/tree/b/c") == 0
    assert run("-get", "/w/b/c", str(tmp_path / "back/b/c")) == 1
    assert "File exists" in run.error
    assert run("-get", "-f", "/w/b/c", str(tmp_path / "back/b/c")) == 0


def test_a_new_directory_costs_two_requests_a_file(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file and the place of its first bytes come in one exchange, its name with its length in
    another; nothing is asked about names in a directory that was just made."""
    source = tmp_path / "many"
    source.mkdir()
    for number in range(20):
        (source / f"{number}").write_bytes(b"x" * number)  # the first one is empty
    asked: list[str] = []
    call = DfsClient.call

    def counted(self: DfsClient, request: Any) -> Any:
        asked.append(type(request).__name__)
        return call(self, request)

    monkeypatch.setattr(DfsClient, "call", counted)
    assert run("-put", "-t", "4", str(source), "/w") == 0

    assert (asked.count("CreateFile"), asked.count("CloseFile")) == (20, 20)
    assert len(asked) < 50, f"{len(asked)} requests for 20 files: {asked}"
    assert run("-cat", "/w/0", "/w/19") == 0
    assert run.out == "x" * 19


def test_a_put_has_its_name_only_once_it_is_complete(run: Terminal, cluster: LocalCluster) -> None:
    """Until then it has a name that no listing shows, and what -f replaces stays."""
    run("-mkdir", "/w")
    assert run("-put", "-", "/w/f", stdin=b"old") == 0
    putting = cluster.begin("dfs", "-put", "-f", "-", "/w/f")
    assert putting.stdin is not None

    putting.stdin.write(b"n" * 3_000_000)
    putting.stdin.flush()
    wait_for(lambda: cluster.client().report().files_open == 1, 60.0, "the file to be written")
    assert run("-ls", "-C", "/w") == 0 and run.out.split() == ["/w/f"]
    assert run("-cat", "/w/f") == 0 and run.out == "old"
    putting.communicate(b"ew", timeout=60)

    assert putting.returncode == 0
    assert run("-ls", "-C", "/w") == 0 and run.out.split() == ["/w/f"]
    assert run("-tail", "/w/f") == 0 and run.out.endswith("nnew")


@pytest.mark.parametrize("is_tree", [False, True])
def test_an_interrupted_put_leaves_nothing(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_tree: bool
) -> None:
    """Ctrl-C in the middle of a file: status 130, no half of it under any name."""
    run("-mkdir", "/w")
    run("-put", "-", "/w/f", stdin=b"old")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "f").write_bytes(b"n" * 5_000_000)

    def interrupted(progress: Progress, count: int) -> None:
        progress.stop()
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "add", interrupted)
    source = tmp_path / "tree" if is_tree else tmp_path / "tree" / "f"
    status = run("-put", "-f", str(source), "/w")

    assert status == 130
    assert run("-ls", "-R", "-C", "/w") == 0
    assert run.out.split() == (["/w/f", "/w/tree"] if is_tree else ["/w/f"])
    assert run("-cat", "/w/f") == 0 and run.out == "old"


def test_relative_paths_begin_at_home(run: Terminal) -> None:
    run("-put", "-", "f", stdin=b"home")

    assert run("-cat", "f", "/user/tester/f", "dfs:///user/tester/f") == 0
    assert run.out == "homehomehome"
    run("-ls", "-C", "*")
    assert run.out == "f\n"
    run("-ls", "-C")
    assert run.out == "f\n"


def test_globs_name_several(run: Terminal) -> None:
    run("-mkdir", "/w")
    for name in ("part-0", "part-1", "other"):
        run("-put", "-", f"/w/{name}", stdin=name.encode())

    assert run("-cat", "/w/part-*") == 0
    assert run.out == "part-0part-1"
    assert run("-cat", "/w/{other,part-0}") == 0
    assert run.out == "otherpart-0"
    assert run("-rm", "/w/nothing*") == 1
    assert run("-rm", "-f", "/w/nothing*") == 0


def test_trash_takes_and_gives_back(run: Terminal) -> None:
    """GFS-65, 66: a delete is a rename; undelete brings it back."""
    run("-mkdir", "/w")
    run("-put", "-", "/w/f", stdin=b"kept")

    assert run("-rm", "/w/f") == 0
    moved = re.fullmatch(r"Moved: '/w/f' to trash at: (\S+)\n", run.out)
    assert moved
    assert run("-cat", moved[1]) == 0
    assert run.out == "kept"
    assert run("-undelete", "/w/f") == 0
    assert run("-cat", "/w/f") == 0
    assert run("-rm", "-skipTrash", "/w/f") == 0
    assert run.out == "Deleted /w/f\n"
    assert run("-expunge", "-immediate") == 0


def test_files_and_bytes_below_a_path_are_counted(run: Terminal) -> None:
    run("-mkdir", "/w", "/w/d")
    run("-put", "-", "/w/d/f", stdin=b"x" * 2048)
    run("-put", "-", "/w/g", stdin=b"y")

    run("-count", "/w")
    assert run.out == f"{2:>12} {2:>12} {2049:>18} /w\n"
    run("-du", "/w")
    assert run.out == "2048  4096  /w/d\n1     2     /w/g\n"
    run("-du", "-s", "-h", "/w/d")
    assert run.out == "2 K  4 K  /w/d\n"
    assert run("-df") == 0
    assert re.search(r"^Filesystem +Size +Used +Available +Use%\ndfs://test +\d+", run.out)


def test_quotas_limit_a_directory_and_are_counted_as_in_hadoop(run: Terminal) -> None:
    """EV-04, GFS-85."""
    run("-mkdir", "/w", "/w/q")
    assert run("-setQuota", "3", "/w/q") == 0
    assert run("-setSpaceQuota", "1g", "/w/q") == 0
    assert run("-put", "-", "/w/q/f", stdin=b"12345") == 0

    run("-count", "-q", "-v", "/w/q", "/w")
    assert run.out == (
        f"{'QUOTA':>12} {'REM_QUOTA':>15} {'SPACE_QUOTA':>15} {'REM_SPACE_QUOTA':>15} "
        f"{'DIR_COUNT':>12} {'FILE_COUNT':>12} {'CONTENT_SIZE':>18} PATHNAME\n"
        f"{3:>12} {1:>15} {1 << 30:>15} {(1 << 30) - 10:>15} {1:>12} {1:>12} {5:>18} /w/q\n"
        f"{'none':>12} {'inf':>15} {'none':>15} {'inf':>15} {2:>12} {1:>12} {5:>18} /w\n"
    )
    run("-count", "-u", "-h", "/w/q")
    assert run.out.split() == ["3", "1", "1", "G", "1024", "M", "/w/q"]
    assert run("-put", "-", "/w/q/g", stdin=b"") == 0
    assert run("-put", "-", "/w/q/h", stdin=b"") == 1
    assert "/w/q: may hold 3 files and directories, has 3; 1 more are too many" in run.error
    assert run("-setSpaceQuota", "0", "/w/q") == 0
    assert run("-put", "-f", "-", "/w/q/g", stdin=b"x") == 1
    assert run("-clrQuota", "/w/q") == 0
    assert run("-put", "-f", "-", "/w/q/g", stdin=b"x") == 1
    assert "bytes with all replicas" in run.error
    assert run("-clrSpaceQuota", "/w/q") == 0
    assert run("-put", "-f", "-", "/w/q/g", stdin=b"x") == 0
    assert run("-ls", "-C", "/w/q") == 0 and run.out.split() == ["/w/q/f", "/w/q/g"]
    assert run("-setQuota", "0", "/w/q") == 255
    assert run("-setSpaceQuota", "much", "/w/q") == 255
    assert run("-setQuota", "5", "/w/q/f") == 1


def test_stat_says_what_its_format_asks_for(run: Terminal) -> None:
    run("-mkdir", "/w")
    run("-put", "-", "/w/f", stdin=b"12345")

    run("-stat", "%F|%a|%A|%b|%n|%o|%r|%u|%g", "/w/f")
    assert run.out == "regular file|644|rw-r--r--|5|f|1048576|2|tester|tester\n"
    run("-stat", "/w/f")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", run.out)


def test_test_answers_by_exit_status(run: Terminal) -> None:
    run("-mkdir", "/w")
    run("-touchz", "/w/empty")
    run("-put", "-", "/w/full", stdin=b"x")

    for words, status in (
        (("-e", "/w"), 0), (("-e", "/none"), 1), (("-d", "/w"), 0), (("-d", "/w/full"), 1),
        (("-f", "/w/full"), 0), (("-z", "/w/empty"), 0), (("-z", "/w/full"), 1),
        (("-s", "/w/full"), 0), (("-s", "/w/empty"), 1),
    ):  # fmt: skip
        assert run("-test", *words) == status, words


def test_head_tail_text_and_merge(run: Terminal, tmp_path: Path) -> None:
    run("-mkdir", "/w")
    run("-put", "-", "/w/a", stdin=b"A" * 2000 + b"end")
    run("-put", "-", "/w/z.gz", stdin=gzip.compress(b"plain\n"))

    run("-head", "/w/a")
    assert run.out == "A" * 1024
    run("-tail", "/w/a")
    assert run.out == "A" * 1021 + "end"
    run("-text", "/w/z.gz")
    assert run.out == "plain\n"
    assert run("-getmerge", "-nl", "/w", str(tmp_path / "m")) == 0
    assert (tmp_path / "m").read_bytes().startswith(b"A" * 2000 + b"end\n\x1f\x8b")


def test_files_are_appended_to_copied_and_moved(run: Terminal, tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"local")
    run("-mkdir", "/w", "/w/d")

    assert run("-appendToFile", str(tmp_path / "l"), "/w/f") == 0
    assert run("-appendToFile", "-", "/w/f", stdin=b"+stdin") == 0
    assert run("-cp", "/w/f", "/w/d") == 0
    assert run("-cp", "/w/f", "/w/d") == 1
    assert "cp: `/w/d/f': File exists" in run.error
    assert run("-mv", "/w/f", "/w/g") == 0
    assert run("-mv", "/w/g", "/w/d") == 0
    run("-cat", "/w/d/*")
    assert run.out == "local+stdinlocal+stdin"
    assert run("-cp", "-f", "/w/d/f", f"file://{tmp_path}/copy") == 0
    assert (tmp_path / "copy").read_bytes() == b"local+stdin"


def test_checksum_is_that_of_the_bytes(run: Terminal, tmp_path: Path) -> None:
    from crc32c import crc32c

    data = os.urandom(1_500_000)
    (tmp_path / "f").write_bytes(data)
    run("-put", str(tmp_path / "f"), "/w")

    run("-checksum", "/w")
    assert run.out == f"/w\tCOMPOSITE-CRC32C\t{crc32c(data):08x}\n"


def test_find_goes_by_names_in_any_case_if_asked(run: Terminal) -> None:
    run("-mkdir", "-p", "/w/a/B")
    run("-touchz", "/w/a/x.txt", "/w/a/B/y.TXT")

    run("-find", "/w", "-name", "*.txt")
    assert run.out == "/w/a/x.txt\n"
    run("-find", "/w", "-iname", "*.txt", "-print0")
    assert sorted(run.out.split("\0")) == ["", "/w/a/B/y.TXT", "/w/a/x.txt"]


def test_modes_and_owners_are_changed_as_hadoop_writes_them(run: Terminal) -> None:
    run("-mkdir", "/w")
    run("-touchz", "/w/f")

    run("-chmod", "u+x,go-r", "/w/f")
    run("-stat", "%A", "/w/f")
    assert run.out == "rwx------\n"
    run("-chmod", "-R", "750", "/w")
    run("-stat", "%a", "/w/f")
    assert run.out == "750\n"
    assert run("-chmod", "nonsense", "/w/f") == 1
    assert run("-chgrp", "staff", "/w/f") == 0
    run("-stat", "%u:%g", "/w/f")
    assert run.out == "tester:staff\n"


def test_properties_say_how_files_are_made(run: Terminal, tmp_path: Path) -> None:
    """As `hdfs dfs -D dfs.replication=1 -put`."""
    (tmp_path / "f").write_bytes(b"x" * 100)
    source = str(tmp_path / "f")
    assert run("-mkdir", "-p", "/w") == 0

    for words in (["-D", "dfs.replication=1", "-D", "dfs.blocksize=2m"], ["-Ddfs.replication=1"]):
        assert run(*words, "-put", "-f", source, "/w/put") == 0, run.error
        assert run("-stat", "%r %o", "/w/put") == 0
        replicas, size = run.out.split()
        assert replicas == "1" and (size == "2097152") == (len(words) == 4)
    assert run("-Ddfs.replication=1", "-touchz", "/w/empty") == 0
    assert run("-stat", "%r", "/w/empty") == 0 and run.out == "1\n"
    for wrong in ("dfs.replication=none", "dfs.replication=0", "dfs.blocksize=many"):
        assert run("-D", wrong, "-put", "-f", source, "/w/put") == 255
        assert f"-D {wrong}" in run.error


def test_setrep_waits(run: Terminal) -> None:
    """GFS-12: raised and lowered on a live file."""
    run("-put", "-", "/w", stdin=b"x")

    assert run("-setrep", "-w", "1", "/w") == 0
    assert run.out.startswith("Replication 1 set: /w\nWaiting for /w ...")
    assert run.out.endswith(" done\n")


def test_rules_hold_for_a_directory_and_all_below_it(run: Terminal) -> None:
    """GFS-04, GFS-69: fewer replicas and no trash for scratch, as set; then as everywhere again."""
    run("-mkdir", "-p", "/w/scratch/deep")

    assert run("-policy", "-replication", "1", "-trash", "0", "/w/scratch") == 0
    assert run.out == (
        "/w/scratch\treplication 1 (rule of /w/scratch)\ttrash none (rule of /w/scratch)"
        "\tappends gfs (the cluster's)\n"
    )
    assert run("-touchz", "/w/scratch/deep/f", "/w/g") == 0
    assert run("-stat", "%r", "/w/scratch/deep/f", "/w/g") == 0 and run.out.split() == ["1", "2"]
    assert run("-rm", "/w/scratch/deep/f") == 0 and run.out == "Deleted /w/scratch/deep/f\n"
    assert run("-policy", "-replication", "default", "-trash", "12h", "/w/scratch") == 0
    assert "replication 2 (the cluster's)\ttrash 43200s (rule of /w/scratch)" in run.out
    assert run("-policy", "-appends", "serialised", "/w/scratch") == 0
    assert run.out.endswith("\tappends serialised (rule of /w/scratch)\n")
    assert run("-policy", "-trash", "soon", "/w") == 255 and "such as 500ms" in run.error
    assert run("-policy", "-appends", "twice", "/w") == 255
    assert "-appends is 'twice': it is one of gfs, serialised; or `default`" in run.error
    assert run("-policy", "/w/nope") == 1 and "No such file" in run.error


def test_the_story_of_a_file_and_of_a_chunk(run: Terminal) -> None:
    """What happened, when, why."""
    run("-mkdir", "/w")
    run("-put", "-", "/w/f", stdin=b"bytes")
    run("-fsck", "/w/f", "-chunks")
    handle = re.search(r"[0-9a-f]{16}", run.out)
    assert handle is not None

    assert run("-story", "/w/f") == 0
    assert re.search(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} created by ", run.out)
    assert "closed with 5 bytes" in run.out
    assert run("-story", handle[0]) == 0 and "created as chunk 0 on h" in run.out
    assert run("-story", "/w/nope") == 1 and "`/w/nope': No such file or directory" in run.error


def test_snapshots_are_independent(run: Terminal) -> None:
    """GFS-49 … 52."""
    run("-mkdir", "/w")
    run("-put", "-", "/w/f", stdin=b"before")

    assert run("-snapshot", "/w", "/w-snap") == 0
    run("-appendToFile", "-", "/w/f", stdin=b"+after")

    run("-cat", "/w/f", "/w-snap/f")
    assert run.out == "before+afterbefore"
    run("-rm", "-r", "-skipTrash", "/w-snap")


def test_listings_facts_and_checks_for_programs(run: Terminal) -> None:
    run("-mkdir", "/w")
    run("-put", "-", "/w/a b\n", stdin=b"x" * 100)
    run("-mkdir", "/w/z")

    assert run("-ls", "--json", "/w") == 0
    first, second = map(json.loads, run.out.splitlines())
    assert (first["path"], first["length_bytes"], first["replication"]) == ("/w/a b\n", 100, 2)
    assert (second["path"], second["is_directory"]) == ("/w/z", True)
    assert run("-stat", "--json", "/w/a*") == 0
    assert json.loads(run.out) == first
    assert run("-fsck", "/w", "--json") == 0
    checked = json.loads(run.out)
    assert (checked["healthy"], checked["files"], checked["chunks"]) == (True, 1, 1)
    assert checked["troubles"] == []


def test_fsck_ends_with_numbers_and_a_status(run: Terminal) -> None:
    run("-put", "-", "/w", stdin=b"x" * 1_500_000)

    assert run("-fsck", "/w", "-files", "-chunks", "-locations", "-compare") == 0

    lines = run.out.splitlines()
    assert lines[0].startswith("/w 1500000 bytes, replication=2, 2 chunk(s):  OK")
    assert "Live_repl=2" in lines[1] and "h1" in lines[1] and "h2" in lines[1]
    assert "Under-replicated chunks: 0" in lines
    assert "Corrupt chunks: 0" in lines
    assert "Missing chunks: 0" in lines
    assert lines[-1] == "Status: HEALTHY"


def test_fsck_names_what_is_gone_and_what_is_rotten(run: Terminal, cluster: LocalCluster) -> None:
    """Of the only copies: nothing can repair them, and nothing else is the matter."""
    kept: dict[str, Path] = {}
    run("-mkdir", "/w")
    for name in ("gone", "rotten"):
        run("-put", "-", f"/w/{name}", stdin=b"x" * 1000)
        assert run("-setrep", "-w", "1", f"/w/{name}") == 0
        assert run("-fsck", f"/w/{name}", "-locations") == 0
        found = re.search(r"([0-9a-f]{16}) .* \[(h\d)\]", run.out)
        assert found is not None, run.out
        place = cluster.host_directory(found[2]) / CHUNKSERVER
        kept[name] = place / path_of(int(found[1], 16), "data")
    kept["gone"].unlink()
    kept["rotten"].write_bytes(b"y" + kept["rotten"].read_bytes()[1:])
    assert run("-fsck", "/w", "-compare") == 1
    assert "Differing chunks: 2" in run.out.splitlines()

    def is_known() -> bool:
        return run("-fsck", "/w") == 1 and run.out.count("MISSING") == 2

    wait_for(is_known, 60.0, "the master to know")
    lines = run.out.splitlines()

    assert sum(line.startswith("/w/gone: chunk 0 (") for line in lines) >= 1
    assert any(line.startswith("/w/rotten: ") and "CORRUPT at h" in line for line in lines)
    assert "Missing chunks: 2" in lines
    assert lines[-1] == "Status: CORRUPT"
    assert run("-fsck", "/w", "--json") == 1
    assert json.loads(run.out)["missing"] == 2
    assert run("-rm", "-r", "-skipTrash", "/w") == 0
    assert run("-fsck", "/") == 0 and run.out.endswith("Status: HEALTHY\n")


def test_without_a_cluster_it_is_the_disk(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `hadoop fs` in local mode."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "nobody"))
    (tmp_path / "f").write_bytes(b"disk")

    assert run("-cat", str(tmp_path / "f")) == 0
    assert run.out == "disk"
    assert run("-fs", "local", "-mkdir", str(tmp_path / "d")) == 0
    assert run("-cp", f"file:{tmp_path}/f", f"file:{tmp_path}/d") == 0
    assert run("-ls", "-C", str(tmp_path / "d")) == 0
    assert run.out == f"{tmp_path}/d/f\n"
    assert run("-cat", "dfs:///f") == 1
    assert "there is no current cluster" in run.error


@pytest.mark.parametrize(
    "words",
    [
        ["-rm", "-r", "-f"], ["-rm", "-r", "-skipTrash"], ["-rmdir"], ["-mkdir"], ["-touch"],
        ["-touchz"], ["-chmod", "-R", "777"], ["-chown", "x"], ["-chgrp", "x"], ["-setrep", "2"],
        ["-put", "/etc/hostname"], ["-cp", "file:/etc/hostname"], ["-mv", "file:/etc/hostname"],
        ["-appendToFile", "/etc/hostname"], ["-snapshot", "file:/x"],
    ],
)  # fmt: skip
def test_without_a_cluster_nothing_on_the_disk_is_changed_unasked(
    run: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    """`-rm -r DIR` deleted this machine's files for good where someone had no cluster yet."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "nowhere"))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "d"
    target.mkdir()
    (target / "kept").write_text("x")
    before = (target.stat().st_mode, target.stat().st_mtime_ns)

    assert run(*words, str(target)) != 0

    assert "there is no current cluster" in run.error and "file:" in run.error
    assert (target / "kept").read_text() == "x"
    assert (target.stat().st_mode, target.stat().st_mtime_ns) == before
    assert run("-rm", "-r", f"file:{target}") == 0
    assert not target.exists()


def test_the_command_itself_runs(cluster: LocalCluster) -> None:
    """Through `mrstream`, in a process of its own."""
    done = cluster.mrstream("dfs", "-put", "-", "/from-stdin", input=b"bytes")
    assert (done.returncode, done.stderr) == (0, b"")
    done = cluster.mrstream("dfs", "-cat", "/from-stdin")
    assert (done.returncode, done.stdout) == (0, b"bytes")
