"""The processes of a place (a cluster's directory on a host), read off /proc.

A daemon is known by its command line; what it started and left behind, however far removed, by the
marks in its environment. Nothing here relies on a file that says who runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from mrstream.cluster.agent.software import POLL_S

PLACE_MARK = "MRSTREAM_PLACE"
ROLE_MARK = "MRSTREAM_ROLE"
KILLED_S_MAX = 5.0
WORDS_S_MAX = 0.5
"""Between two programs a process has no words for a moment; on a crowded host that moment lasts."""


CELL_MARK = "@"


def module_of(role: str) -> str:
    """Return the module that is run to be a role, such as `mrstream.dfs.master`; the role of a
    cell's master has the cell's name behind that (`dfs.master@logs`)."""
    return f"mrstream.{role.partition(CELL_MARK)[0]}"


def words_of(role: str) -> list[str]:
    """Return the words of a command line that make a role of Python, but for host and place."""
    cell = role.partition(CELL_MARK)[2]
    return ["-P", "-m", module_of(role), *(["--cell", cell] if cell else [])]


class Processes:
    """Finds, watches and ends the processes of one place."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._role_of: dict[int, str] = {}

    def marks(self, role: str) -> dict[str, str]:
        """Return what the environment of a role's processes must hold for us to find them."""
        return {PLACE_MARK: self._directory, ROLE_MARK: role}

    def adopt(self, child: subprocess.Popen[bytes], role: str) -> None:
        """Count a child of ours as dead once it has ended, not only once it was waited for; and as
        its role's while it has no command line yet, or is about to have another."""
        self._children[child.pid] = child
        self._role_of[child.pid] = role

    def has_child(self, role: str) -> bool:
        """Whether a child of ours is that role, and lives."""
        return any(its == role and self.lives(pid) for pid, its in self._role_of.items())

    def status_of(self, role: str) -> int | None:
        """Return how our last child of that role ended, and forget it; None: we had none."""
        status = None
        for pid in [pid for pid, its in self._role_of.items() if its == role]:
            if not self.lives(pid):
                status = self._children[pid].returncode
                self._forget(pid)
        return status

    def reap(self) -> None:
        """Forget the children that have ended, however they did."""
        for pid in [pid for pid in self._children if not self.lives(pid)]:
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        del self._children[pid], self._role_of[pid]

    def is_role(self, pid: int, role: str | None) -> bool:
        """Whether a process is that role's daemon of this place (None: any role's)."""
        argv = command_line(pid).split("\0")
        if "-m" not in argv or "--dir" not in argv or not self.lives(pid):
            return False
        at_role, at_dir = argv.index("-m") + 1, argv.index("--dir") + 1
        if max(at_role, at_dir) >= len(argv) or argv[at_dir] != self._directory:
            return False
        if role is None:
            return True
        at_cell = argv.index("--cell") + 1 if "--cell" in argv else len(argv)
        cell = argv[at_cell] if at_cell < len(argv) else ""
        # Versions that installed five packages ran `-m dfs.master`: an upgrade must find those too.
        is_module = argv[at_role] in (module_of(role), role)
        return is_module and cell == role.partition(CELL_MARK)[2]

    def of_role(self, role: str | None) -> list[int]:
        """Return the daemons of a role (None: of all roles)."""
        own = [pid for pid, its in self._role_of.items() if role in (None, its) and self.lives(pid)]
        return list(dict.fromkeys([*(p for p in _all_pids() if self.is_role(p, role)), *own]))

    def marked(self, role: str | None) -> list[int]:
        """Return the processes that inherited the marks of a daemon of this place."""
        place = f"\0{PLACE_MARK}={self._directory}\0".encode()
        mark = b"\0" if role is None else f"\0{ROLE_MARK}={role}\0".encode()
        found: list[int] = []
        for pid in _all_pids():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environment = b"\0" + file.read() + b"\0"
            except OSError:
                continue  # gone, or another user's
            if place in environment and mark in environment and pid != os.getpid():
                found.append(pid)
        return found

    def alive(self) -> list[tuple[int, str]]:
        """Return every process that belongs to this place, in whatever way, with its command."""
        pids = sorted({*self.marked(None), *self.of_role(None)})
        return [(pid, command_line(pid).replace("\0", " ")) for pid in pids if self.lives(pid)]

    def lives(self, pid: int) -> bool:
        """Whether a process exists and has not ended."""
        child = self._children.get(pid)
        if child is not None:
            return child.poll() is None
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[0] != b"Z"
        except (OSError, IndexError):
            return False

    def end(self, role: str, grace_s: float) -> list[int]:
        """End a role politely first, by force after the limit, and then whatever it started and
        left behind; return who needed force."""
        pids = self.of_role(role)
        for pid in pids:
            _signal(pid, signal.SIGTERM)
        self._wait_gone(pids, grace_s)
        left = [pid for pid in {*pids, *self.marked(role)} if self.lives(pid)]
        for pid in left:
            _signal(pid, signal.SIGKILL)
        self._wait_gone(left, KILLED_S_MAX)
        return left

    def _wait_gone(self, pids: list[int], limit_s: float) -> None:
        deadline_s = time.monotonic() + limit_s
        while any(self.lives(pid) for pid in pids) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)


def command_line(pid: int) -> str:
    """Return the words of a process with NULs between them, nothing if it has ended. One that is
    just becoming another program (a master that starts anew) is asked again: it does not end."""
    deadline_s = time.monotonic() + WORDS_S_MAX
    while True:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").rstrip("\0")
        except OSError:
            return ""
        if words or not _has_program(pid) or time.monotonic() > deadline_s:
            return words
        time.sleep(0.001)


def _has_program(pid: int) -> bool:
    """Whether a process runs a program: kernel threads do not, nor does what has ended."""
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was quicker
        os.kill(pid, number)
