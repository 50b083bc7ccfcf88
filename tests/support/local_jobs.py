"""Runs `mrstream` as a user does: a process of its own, in a directory and a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MRSTREAM = [sys.executable, "-P", "-m", "mrstream.streaming.cli"]
TREE = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Ran:
    """What a run of `mrstream` did."""

    status: int
    stdout: bytes
    stderr: str

    def line(self, words: str) -> str:
        """Give the first line of stderr with these words."""
        found = [line for line in self.stderr.splitlines() if words in line]
        assert found, f"no line with {words!r} in:\n{self.stderr}"
        return found[0]


class Desk:
    """A place to run jobs from."""

    def __init__(self, room: Path, command: Sequence[str] = MRSTREAM) -> None:
        """`command` is what `mrstream` is here."""
        self.command = command
        self.home = room / "home"
        self.cwd = room / "cwd"
        self.cwd.mkdir()
        self.out = room / "out"

    def write(self, name: str, content: bytes | str) -> Path:
        """Make a file in the working directory."""
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def environment(self) -> dict[str, str]:
        """The environment of every run: no cluster, a state directory of its own."""
        inherited = {k: v for k, v in os.environ.items() if k != "MRSTREAM_CLUSTER"}
        return {**inherited, "MRSTREAM_HOME": str(self.home), "PYTHONPATH": str(TREE)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start `mrstream` with these words."""
        return subprocess.Popen(
            [*self.command, *words],
            cwd=self.cwd,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, timeout_s: float = 120.0) -> Ran:
        """Run `mrstream` with these words to its end."""
        process = self.start(*words)
        stdout, stderr = process.communicate(timeout=timeout_s)
        return Ran(process.returncode, stdout, stderr.decode("utf-8", "replace"))

    def job(self, *words: str, timeout_s: float = 120.0) -> Ran:
        """Run a job over the file `in` into the directory `out`."""
        return self.run(
            *words, "-input", str(self.cwd / "in"), "-output", str(self.out), timeout_s=timeout_s
        )

    def parts(self) -> dict[str, bytes]:
        """Give the files of the output directory."""
        return {path.name: path.read_bytes() for path in sorted(self.out.iterdir())}

    def left_behind(self) -> list[str]:
        """Name what should not be there after a job: scratch directories and temporary output."""
        found = list(self.home.rglob("work")) if self.home.exists() else []
        if self.out.exists():
            found += list(self.out.rglob("_temporary"))
        return [str(path) for path in found]


def processes_with(mark: str) -> list[int]:
    """Give the live processes that have this text in their command line or environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                for part in ("cmdline", "environ"):
                    data = Path(f"/proc/{name}/{part}").read_bytes()
                    if mark.encode() in data:
                        found.append(int(name))
                        break
            except OSError:
                continue  # it has just ended, or it is not ours
    return found
