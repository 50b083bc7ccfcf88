"""Daemons whose master is gone: data stays safe, and no attempt outlives it for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for

JOB_MASTER, WORKER = "mapreduce.master", "mapreduce.worker"
ASLEEP = str(600_000_000 + os.getpid())
# For the worker's wait for its master, and for nothing else, a second is as good as a minute.
QUICK_WAIT = """
import time, types, mrstream.mapreduce.worker.master_link as link
link.time = types.SimpleNamespace(monotonic=lambda: 60 * time.monotonic())
"""


def asleep() -> list[int]:
    """The processes of the mapper, also those that left its session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"sleep\0{ASLEEP}\0" == (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_worker_whose_master_is_gone_for_good_kills_its_attempts(tmp_path: Path) -> None:
    """No orphans; the chunkserver keeps the data, and a new master goes on with the job."""
    mapper = tmp_path / "m.sh"
    mapper.write_text(
        "#!/bin/sh\n"
        f"[ -e {tmp_path}/ran ] && exec cat\n"
        f"touch {tmp_path}/ran\n"
        f"setsid sleep {ASLEEP} &\nsleep {ASLEEP}\n"
    )
    mapper.chmod(0o755)
    (tmp_path / "words").write_text("a\nb\n")
    with LocalCluster(tmp_path / "c", 1, roles=(MASTER, CHUNKSERVER, JOB_MASTER)) as cluster:
        cluster.start(WORKER, "h1", QUICK_WAIT)
        assert cluster.mrstream("dfs", "-put", str(tmp_path / "words"), "/words").returncode == 0
        words = [
            sys.executable,
            "-m",
            "mrstream.streaming.cli",
            "-input",
            "/words",
            "-mapper",
            "m.sh",
        ]
        job = subprocess.Popen(
            words, cwd=tmp_path, env=cluster.environment, stdout=subprocess.PIPE, text=True
        )
        try:
            wait_for(lambda: len(asleep()) == 2, 60.0, "the mapper runs, and what it left behind")

            cluster.kill(JOB_MASTER, "h1")

            wait_for(lambda: not asleep(), 60.0, "all of the attempt is gone")
            kept = cluster.mrstream("dfs", "-cat", "/words")
            assert kept.stdout == b"a\nb\n"
            cluster.start(JOB_MASTER, "h1")
            out, _ = job.communicate(timeout=120)
            assert (job.returncode, out) == (0, "a\t\nb\t\n")
        finally:
            job.kill()
            job.wait()
