"""How speed is measured here: both sides in one run, interleaved, as ratios of medians.

The machine is shared and noisy, so a figure alone says nothing; a ratio against a peer that ran in
the same minutes does.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MRSTREAM = str(Path(sys.executable).with_name("mrstream"))
# Set on many test machines, and hardly where people work: without byte code every start compiles
# our modules, and unbuffered the Python programs of a peer write each line by itself.
_NOT_USUAL = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")


@dataclass(frozen=True)
class Run:
    """What one run of a command cost; CPU time is that of all its processes."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio, ours over the peer's, and what we want it to be."""

    what: str
    ours: float
    peer: float
    unit: str
    goal: str

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    def __str__(self) -> str:
        return (
            f"| {self.what} | {self.ours:.3g} {self.unit} | {self.peer:.3g} {self.unit} "
            f"| {self.ratio:.2f} | {self.goal} |"
        )


HEADER = "| what | mrstream | peer | ratio | goal |\n|---|---|---|---|---|"


def run(argv: Sequence[str], cwd: Path, env: dict[str, str] | None = None) -> Run:
    """Run a command to its end; a failure is an error, not a figure."""
    env = {name: value for name, value in (env or os.environ).items() if name not in _NOT_USUAL}
    with tempfile.TemporaryFile() as said:
        started = time.monotonic()
        child = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            said.seek(0)
            tail = said.read()[-2000:].decode("utf-8", "replace")
            raise RuntimeError(f"{argv} ended with {child.returncode}: {tail}")
    return Run(wall_s, used.ru_utime + used.ru_stime)


def interleaved(contenders: dict[str, Callable[[], Run]], repeats: int = 3) -> dict[str, Run]:
    """Run all contenders in turn, `repeats` times over; give the median of each."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            runs[name].append(contender())
    return {
        name: Run(
            statistics.median(each.wall_s for each in of_name),
            statistics.median(each.cpu_s for each in of_name),
        )
        for name, of_name in runs.items()
    }


@contextmanager
def workplace() -> Iterator[Path]:
    """A directory of our own with room in it, gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="mrstream-bench-", dir="/var/tmp"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def words(path: Path, size_bytes: int, seed: int = 1) -> None:
    """Write text with the word frequencies of prose (Zipf), about ten words a line."""
    rng = random.Random(seed)
    letters = "etaoinshrdlcumwfgypbvk"
    vocabulary = ["".join(rng.choices(letters, k=rng.randint(2, 12))) for _ in range(50_000)]
    weights = [1 / (rank + 2) for rank in range(len(vocabulary))]
    block = []
    for _ in range(20_000):
        block.append(" ".join(rng.choices(vocabulary, weights, k=10)))
    with open(path, "w") as file:
        written = 0
        while written < size_bytes:
            rng.shuffle(block)
            text = "\n".join(block) + "\n"
            written += file.write(text)


def records(path: Path, size_bytes: int, seed: int = 2) -> None:
    """Write 100-byte records: a key of 10 characters, TAB, 88 characters, newline."""
    rng = random.Random(seed)
    filler = ("0123456789abcdefghijklmnopqrstuvwxyz" * 3)[:88]
    with open(path, "w") as file:
        for _ in range(size_bytes // 100 // 1000):
            file.write("".join(f"{rng.getrandbits(40):010x}\t{filler}\n" for _ in range(1000)))


def urls(path: Path, size_bytes: int, seed: int = 3) -> None:
    """Write URL TAB 1 lines with long shared prefixes."""
    rng = random.Random(seed)
    hosts = [f"http://www.site{rng.randrange(5000)}.example.org" for _ in range(2000)]
    with open(path, "w") as file:
        written = 0
        while written < size_bytes:
            text = "".join(
                f"{rng.choice(hosts)}/path/{rng.randrange(1000)}/page{rng.randrange(10**6)}.html\t1\n"
                for _ in range(1000)
            )
            written += file.write(text)


def script(path: Path, text: str) -> Path:
    """Write an executable."""
    path.write_text(text)
    path.chmod(0o755)
    return path


class _Cluster(Protocol):
    directory: Path


def daemons_cpu_s(cluster: _Cluster) -> float:
    """CPU time of all daemons of a local cluster, their zygotes and what those have waited for."""
    mark = str(cluster.directory / "hosts")
    return sum(_cpu_s(name, mark) for name in os.listdir("/proc") if name.isdigit())


def _cpu_s(pid: str, mark: str) -> float:
    try:
        if mark.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return 0.0
        figures = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(figure) for figure in figures[11:15]) / os.sysconf("SC_CLK_TCK")
