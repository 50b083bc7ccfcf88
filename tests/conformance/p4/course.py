"""A project directory of the course with real processes in it: ours and foreign ones, mixed.

Everything is waited for by its event, with a net of a minute; everything that was started is ended
by its process id.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NET_S = 120.0
FOREIGN = Path(__file__).parent / "foreign"
OURS = [sys.executable, "-m", "mrstream.mapreduce.p4.cli"]
WORDS = ["the", "quick", "Brown", "fox", "jumps", "Zoë", "lazy", "dog", "a", "a b", "Über"]
MAP = """#!/bin/sh
# A word a line, with a one; in a shell, since executables are in any language.
tr ' ' '\\n' | sed -e '/^$/d' -e 's/$/\t1/'
"""
REDUCE = """#!/usr/bin/awk -f
BEGIN { FS = "\\t" }
NR > 1 && $1 != key { print key "\\t" count; count = 0 }
{ key = $1; count += $2 }
END { if (NR) print key "\\t" count }
"""


class Course:
    """One project directory, one master's port, any number of workers."""

    def __init__(self, place: Path, *, files: int = 5, seed: int = 0) -> None:
        self.place = place
        self._logs = place.parent / f"{place.name}-log"  # not on its disk, which may be full
        self.port = free_port()
        self.started: list[subprocess.Popen[bytes]] = []
        self.master: subprocess.Popen[bytes] | None = None
        rng = random.Random(seed)
        (place / "input").mkdir(parents=True)
        self._logs.mkdir()
        (place / "exec").mkdir()
        for number in range(files):
            lines = [" ".join(rng.choices(WORDS, k=rng.randint(0, 9))) for _ in range(60)]
            (place / "input" / f"file_{number:03d}.txt").write_text("\n".join(lines) + "\n")
        self.executable("map.sh", MAP)
        self.executable("reduce.awk", REDUCE)

    def executable(self, name: str, text: str) -> str:
        path = self.place / "exec" / name
        path.write_text(text)
        path.chmod(0o755)
        return f"exec/{name}"

    def truth(
        self,
        mapper: str = "exec/map.sh",
        reducer: str = "exec/reduce.awk",
        files: str = "input",
    ) -> bytes:
        """P4-26: `cat input/* | map | sort | reduce`, sorted."""
        recipe = f"cat {files}/* | {mapper} | sort | {reducer} | sort"
        environment = {**os.environ, "LC_ALL": "C"}
        return subprocess.run(
            recipe, shell=True, cwd=self.place, env=environment, capture_output=True, check=True
        ).stdout

    # ---- processes -------------------------------------------------------------------------

    def start(self, words: list[str], record: str = "") -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[3]
        environment = {**os.environ, "PYTHONPATH": str(root), "LC_ALL": "C.UTF-8"}
        if record:
            environment["RECORD"] = record
        with (self._logs / str(len(self.started))).open("wb") as log:
            process = subprocess.Popen(words, cwd=self.place, env=environment, stderr=log)
        self.started.append(process)
        return process

    def our_master(self, *options: str) -> subprocess.Popen[bytes]:
        process = self.start([*OURS, "master", str(self.port), *options])
        wait_for(lambda: listens(self.port), "the master to listen")
        self.master = process
        return process

    def foreign_master(self, record: str = "") -> subprocess.Popen[bytes]:
        process = self.start([sys.executable, str(FOREIGN / "master.py"), str(self.port)], record)
        wait_for(lambda: listens(self.port), "the foreign master to listen")
        self.master = process
        return process

    def our_worker(self, *options: str) -> subprocess.Popen[bytes]:
        return self.start([*OURS, "worker", str(self.port), str(free_port()), *options])

    def foreign_worker(self, *habits: str, record: str = "") -> subprocess.Popen[bytes]:
        words = [sys.executable, str(FOREIGN / "worker.py"), str(self.port), str(free_port())]
        return self.start([*words, *habits], record)

    def log_of(self, process: subprocess.Popen[bytes]) -> str:
        return (self._logs / str(self.started.index(process))).read_text()

    def logs(self) -> str:
        return "\n".join(self.log_of(process) for process in self.started)

    # ---- jobs ------------------------------------------------------------------------------

    def submit(self, output: str, reducers: int = 1, mappers: int = 4, **other: str) -> None:
        self.send(
            {
                "message_type": "new_master_job",
                "input_directory": "input",
                "output_directory": output,
                "mapper_executable": other.get("mapper", "exec/map.sh"),
                "reducer_executable": other.get("reducer", "exec/reduce.awk"),
                "num_mappers": mappers,
                "num_reducers": reducers,
            }
        )

    def send(self, message: dict[str, Any] | bytes, port: int | None = None) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        with socket.create_connection(("127.0.0.1", port or self.port), NET_S) as connection:
            connection.sendall(data)

    def results(self, output: str, reducers: int) -> bytes:
        """Wait for all results, then give their lines, sorted."""
        return self.lines_of(output, [f"input_{number}" for number in range(reducers)])

    def lines_of(self, output: str, names: list[str]) -> bytes:
        paths = [self.place / output / name for name in names]
        wait_for(lambda: all(path.exists() for path in paths), f"{output}", self.logs)
        return b"".join(sorted(b"".join(p.read_bytes() for p in paths).splitlines(keepends=True)))

    def shut_down(self) -> list[int]:
        """P4-21; give the exit statuses of all that was started and not killed by a test. Every
        worker has registered before: one that comes too late finds no master, and says so."""
        if self.master is not None:  # else a test plays it, or its own scripts start it
            known = partial(self._all_have_registered, self.master)
            wait_for(known, "every worker to register", self.logs)
        self.send({"message_type": "shutdown"})
        return [process.wait(NET_S) for process in self.started]

    def _all_have_registered(self, master: subprocess.Popen[bytes]) -> bool:
        log = self.log_of(master)
        workers = [each for each in self.started if each is not master and each.poll() is None]
        return all(f"worker {worker.pid} registered" in log for worker in workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.logs())
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def wait_for(is_so: Callable[[], bool], what: str, tell: Callable[[], str] = lambda: "") -> None:
    until_s = time.monotonic() + NET_S
    while not is_so():
        assert time.monotonic() < until_s, f"waited {NET_S} s for {what}\n{tell()}"
        time.sleep(0.02)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A TCP port that is free, as is the UDP port below it. Of those that no client is given."""
    while True:
        port = random.SystemRandom().randint(10_000, 30_000)
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            try:
                tcp.bind(("127.0.0.1", port))
                udp.bind(("127.0.0.1", port - 1))
            except OSError:
                continue
            return port


def recorded(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]
