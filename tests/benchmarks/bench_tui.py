"""The monitor with 200 hosts and 15,000 tasks at two updates a second, in a real terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import statistics
import struct
import sys
import termios
import time
from pathlib import Path

import msgspec

from mrstream.mapreduce.snapshot import JobSeen
from tests.benchmarks.common import Row
from tests.benchmarks.tui_load import Busy
from tests.support.tui_states import JOB, huge

WATCHED_S = 20.0
KEYS = 20


def bench() -> list[Row]:
    """Give the screen's share of a core, a key's answer, and what the watcher costs the master."""
    return [*_screen(), _master()]


def _screen() -> list[Row]:
    pid, terminal = _start()
    try:
        _drain(terminal, 5.0)
        before_s = _cpu_s(pid)
        started = time.monotonic()
        _drain(terminal, WATCHED_S)
        share = (_cpu_s(pid) - before_s, time.monotonic() - started)
        # The help, opened and closed; not by Escape, after which any program waits for more.
        answers = [_answer_s(terminal, b"?") for _ in range(KEYS)]
    finally:
        os.write(terminal, b"q")
        with contextlib.suppress(OSError):  # a terminal without a program says so this way
            _drain(terminal, 1.0)
        os.close(terminal)
        os.waitpid(pid, 0)
    return [
        Row("monitor, share of one core", share[0], share[1], "s", "≤ 0.15"),
        Row("monitor, median answer to a key", statistics.median(answers), 0.1, "s", "≤ 1"),
    ]


def _start() -> tuple[int, int]:
    script = str(Path(__file__).with_name("tui_load.py"))
    pid, terminal = pty.fork()
    if pid == 0:
        environment = dict(os.environ, TERM="xterm-256color", COLUMNS="160", LINES="48")
        os.execve(sys.executable, [sys.executable, script], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))
    return pid, terminal


def _drain(terminal: int, for_s: float) -> None:
    deadline = time.monotonic() + for_s
    while (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0] and not os.read(terminal, 1 << 16):
            return


def _answer_s(terminal: int, key: bytes) -> float:
    """Press a key at a quiet moment and wait for the screen to change."""
    while select.select([terminal], [], [], 0.05)[0]:
        os.read(terminal, 1 << 16)
    started = time.monotonic()
    os.write(terminal, key)
    select.select([terminal], [], [], 5.0)
    return time.monotonic() - started


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _master() -> Row:
    """What answering two questions a second costs, as a share of that second."""
    source = Busy(**vars(huge()))
    seen, hosts, jobs = JobSeen(), 0, 0
    encoder = msgspec.msgpack.Encoder()
    rounds = 200
    started = time.process_time()
    for _ in range(rounds):
        cluster = source.snapshot(hosts, jobs)
        hosts, jobs = cluster.hosts.version, cluster.jobs.version
        job = source.job(JOB, seen)
        seen = job.seen
        encoder.encode(cluster)
        encoder.encode(job)
    used_s = time.process_time() - started
    return Row("master, share of a core for one watcher", used_s, rounds / 2, "s", "≤ 0.02")
