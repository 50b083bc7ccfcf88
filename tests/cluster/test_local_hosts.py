"""`via: local` hosts: the same file format and the same daemons, as processes of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.machine import wait_for

MRSTREAM = str(Path(sys.executable).parent / "mrstream")


class Laptop:
    """A user with three local hosts on addresses that no other test run uses."""

    def __init__(self, home: Path, guard: bool = False) -> None:
        """Without guards, what is killed stays away."""
        self.home = home
        home.mkdir()
        subnet = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        hosts = {f"h{n}": {"address": f"{subnet}.{n}", "dir": f"{home}/h{n}"} for n in (1, 2, 3)}
        document = {"name": "here", "defaults": {"via": "local"}, "hosts": hosts, "guard": guard}
        document["dfs"] = {"chunk_size": "1MiB"}
        (home / "cluster.yaml").write_text(json.dumps(document))
        self.environment = {**os.environ, "MRSTREAM_HOME": str(home / "state")}
        self.environment.pop("MRSTREAM_CLUSTER", None)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MRSTREAM, *words],
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.environment,
            timeout=120,
        )

    def good(self, *words: str) -> str:
        ended = self.run(*words)
        assert ended.returncode == 0, f"{words}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def roles(self) -> dict[tuple[str, str], dict[str, Any]]:
        hosts = json.loads(self.run("cluster", "status", "--json").stdout)["hosts"]
        return {(h, r): s for h, known in hosts.items() for r, s in known["roles"].items()}

    def processes(self) -> list[int]:
        """Every process whose environment or command line names our directories."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                except (OSError, IndexError):
                    continue
                if f"{self.home}/h".encode() in text and state != "Z":
                    found.append(int(entry.name))
        return found


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path / "laptop")
    yield made
    for pid in made.processes():
        os.kill(pid, signal.SIGKILL)


def test_a_laptop_is_a_cluster_too(laptop: Laptop) -> None:
    """up, a file, a job, kill -9 of everything, up again with a cell more, the file, down: nothing
    left."""
    (laptop.home / "words").write_text("a b\nb c\n" * 1000)
    laptop.good("cluster", "up")
    assert {s["state"] for s in laptop.roles().values()} == {"up"}
    laptop.good("dfs", "-put", "words", "/words")
    laptop.good("dfs", "-mkdir", "/logs")
    counted = laptop.good("-input", "/words", "-mapper", "tr ' ' '\\n'", "-reducer", "uniq -c")
    assert [line.split() for line in counted.splitlines()] == [
        ["1000", "a"],
        ["2000", "b"],
        ["1000", "c"],
    ]

    for role in laptop.roles().values():
        os.kill(role["pid"], signal.SIGKILL)
    wait_for(lambda: not laptop.processes(), "nothing outlives the killed daemons", 60)
    document = json.loads((laptop.home / "cluster.yaml").read_text())
    document["dfs"]["cells"] = {"logs": {"path": "/logs"}}
    (laptop.home / "cluster.yaml").write_text(json.dumps(document))
    laptop.good("cluster", "up", "-f", "cluster.yaml")

    assert laptop.good("dfs", "-cat", "/words") == "a b\nb c\n" * 1000
    laptop.good("dfs", "-cp", "/words", "/logs/words")
    status = laptop.good("cluster", "status")
    assert "cell logs at /logs: 1 files, 1 chunks" in status and "dfs.master@logs" in status
    findings = laptop.run("cluster", "doctor").stdout.splitlines()
    assert len(findings) == 1 and "/logs: cell logs is mounted over something" in findings[0]
    said = laptop.good("cluster", "down", "--purge", "--yes")
    assert said.count("no process is left") == 3
    assert laptop.processes() == []
    assert not (laptop.home / "h1" / "here" / "h1").exists()


def test_a_new_secret_shuts_out_who_knew_the_old_one(laptop: Laptop) -> None:
    """An identity file that was lost with a notebook opens nothing more; the data stays."""
    (laptop.home / "f").write_text("kept\n")
    laptop.good("cluster", "up")
    laptop.good("dfs", "-put", "f", "/f")
    stolen = laptop.home / "stolen"
    shutil.copytree(laptop.environment["MRSTREAM_HOME"], stolen)
    refused = laptop.run("cluster", "up", "--new-secret")
    assert refused.returncode == 1 and "runs, with the old secret" in refused.stderr
    assert laptop.good("dfs", "-cat", "/f") == "kept\n"

    laptop.good("cluster", "down")
    said = laptop.good("cluster", "up", "--new-secret")

    assert "it has a new secret" in said
    assert laptop.good("dfs", "-cat", "/f") == "kept\n"
    laptop.environment["MRSTREAM_HOME"] = str(stolen)
    thief = laptop.run("dfs", "-cat", "/f")
    assert thief.returncode == 1 and "kept" not in thief.stdout
    assert "`mrstream cluster join HOST` fetches it" in thief.stderr, "a friend knows what to do"


def test_a_job_gets_an_extra_once_the_file_lists_it_and_is_refused_before(laptop: Laptop) -> None:
    """By the client that reads the cluster's file, and by the master if the client reads another;
    what runs learns of a changed list by itself."""
    (laptop.home / "words").write_text("a b\n")
    (laptop.home / "m.py").write_text(
        "import importlib.util\nprint(bool(importlib.util.find_spec('mfusepy')))\n"
    )
    job = ["-D", "mrstream.job.extras=mount", "-input", "/words", "-output", "/out"]
    job += ["-mapper", "m.py", "-reducer", "NONE"]
    line = (
        "this job needs the extra mount, which cluster here does not have: write `extras: [mount]` "
        "into cluster.yaml, then `mrstream cluster up`\nStreaming Command Failed!\n"
    )
    document = json.loads((laptop.home / "cluster.yaml").read_text())
    (laptop.home / "other.yaml").write_text(json.dumps({**document, "extras": ["mount"]}))
    laptop.good("cluster", "up")
    laptop.good("dfs", "-put", "words", "/words")

    by_the_client = laptop.run(*job)
    by_the_master = laptop.run("-cluster", "other.yaml", *job)

    for refused in (by_the_client, by_the_master):
        assert refused.returncode == 1 and refused.stderr.endswith(line), refused.stderr
    assert "number of splits" not in by_the_client.stderr
    assert laptop.run("dfs", "-test", "-e", "/out").returncode == 1

    before = {place: role["pid"] for place, role in laptop.roles().items()}
    os.replace(laptop.home / "other.yaml", laptop.home / "cluster.yaml")
    said = laptop.good("cluster", "up")
    laptop.good(*job)

    assert said.count("ran with other extras; it is started anew") == len(before)
    assert laptop.good("dfs", "-cat", "/out/part-00000") == "True\t\n"
    restarted = {place: role["pid"] for place, role in laptop.roles().items()}
    assert not set(before.values()) & set(restarted.values())
    assert "started anew" not in laptop.good("cluster", "up")
    assert {place: role["pid"] for place, role in laptop.roles().items()} == restarted
    laptop.good("cluster", "down")


def test_after_down_nothing_falls_back_to_this_machine_without_a_word(laptop: Laptop) -> None:
    """`/words` of the dfs is not `/words` of this disk."""
    (laptop.home / "words").write_text("a b\n")
    here = str(laptop.home / "words")
    laptop.good("cluster", "up")
    laptop.good("dfs", "-put", "words", "/words")
    laptop.good("cluster", "down")
    line = "cluster here is down: `mrstream cluster up -f here` starts it again; jobs and files of"

    for words in (
        ["dfs", "-ls", "/"],
        ["dfs", "-mkdir", "/x"],
        ["dfs", "-put", "words", "/words"],
        ["-input", here, "-mapper", "cat"],
        ["job", "-list"],
        ["top", "--once"],
        ["dumptb", here],
        ["saw", "--program", "p.szl", "--input_files", here, "--destination", "t@1"],
    ):
        refused = laptop.run(*words)
        said = [text for text in refused.stderr.splitlines() if "Streaming Command" not in text]
        assert refused.returncode != 0 and refused.stdout == "", (words, refused.stdout)
        assert len(said) == 1 and line in said[0], (words, refused.stderr)
    assert laptop.run("cluster", "status").returncode == 1
    laptop.good("cluster", "down")

    assert here in laptop.good("dfs", "-ls", f"file://{here}")
    assert here in laptop.good("dfs", "-fs", "local", "-ls", here)
    assert laptop.good("-jt", "local", "-input", here, "-mapper", "cat") == "a b\t\n"
    laptop.good("cluster", "up", "-f", "here")
    assert laptop.good("dfs", "-cat", "/words") == "a b\n"
    laptop.good("cluster", "down", "--purge", "--yes")
    assert laptop.good("-input", here, "-mapper", "cat") == "a b\t\n", "there is no cluster"


def test_down_ends_a_running_job_with_all_that_it_started(laptop: Laptop) -> None:
    """No orphans: also not the children of a mapper that called setsid."""
    (laptop.home / "words").write_text("a b\n")
    mapper = laptop.home / "m.sh"
    mapper.write_text("#!/bin/sh\nsetsid sleep 987654 &\nsleep 987654\n")
    mapper.chmod(0o755)
    laptop.good("cluster", "up")
    laptop.good("dfs", "-put", "words", "/words")
    job = subprocess.Popen(
        [MRSTREAM, "-input", "/words", "-output", "/out", "-mapper", "m.sh"],
        cwd=laptop.home,
        env=laptop.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(sleepers()) >= 2, "the mapper runs")

        laptop.good("cluster", "down")

        assert sleepers() == []
        assert laptop.processes() == [] or laptop.processes() == [job.pid]
    finally:
        job.kill()
        job.wait()


def sleepers() -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes() == b"sleep\x00987654\x00":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
