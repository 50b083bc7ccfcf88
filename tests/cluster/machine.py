"""What both kinds of test hosts share: commands, keys, disks of a fixed size, and a place to be.

A `Site` is one set of hosts on this machine. Its number, taken by a lock, gives it a subnet and
names of its own, so that several test runs can go on at once; whatever an earlier run with that
number left behind (its process was killed) is removed before anything is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = Path("/tmp/mrstream-test-sites")
DISK_BYTES = 1 << 30
TIME_S_MAX = 60.0


def run(*argv: str | Path, check: bool = True, input: bytes | None = None) -> str:
    """Run a command on this machine; return what it said."""
    ended = subprocess.run([str(word) for word in argv], capture_output=True, input=input)
    if check and ended.returncode != 0:
        said = (ended.stderr or ended.stdout).decode(errors="replace")
        raise AssertionError(f"{' '.join(map(str, argv))}: status {ended.returncode}: {said}")
    return ended.stdout.decode(errors="replace")


def switched_s(said: str) -> float:
    """The seconds without a leader, as `cluster switch` tells them."""
    words = said.strip().rsplit(" ", 3)
    assert words[1] == "in" and words[3] == "ms", said
    return int(words[2]) / 1000


def wait_for(true: Callable[[], object], what: str, limit_s: float = TIME_S_MAX) -> None:
    """Return once it is so; fail with the words otherwise."""
    deadline_s = time.monotonic() + limit_s
    while True:
        asked_s = time.monotonic()
        if true():
            return
        assert time.monotonic() < deadline_s, f"still not so after {limit_s:g} s: {what}"
        # A question that starts a process must not be what the hosts are busy with.
        time.sleep(min(1.0, max(0.03, 2 * (time.monotonic() - asked_s))))


class Site:
    """A number, a directory, a key pair, and disks."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.number = self._take_number()
        prefix = f"mrs-{kind}-{self.number}-"
        for stale in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*")):
            remove_stale(stale)
        self.directory = Path(tempfile.mkdtemp(prefix=prefix))
        self.key = self.directory / "id"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        self._disks: list[Path] = []

    def _take_number(self) -> int:
        LOCKS.mkdir(exist_ok=True)
        for number in range(1, 250):
            descriptor = os.open(LOCKS / f"{self.kind}-{number}", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._lock = descriptor
            return number
        raise AssertionError("249 test sites at once")

    def make_disk(self, name: str, size_bytes: int) -> Path:
        """Return a directory that is a disk of that size: it can be filled, and it keeps what was
        written when its host loses power."""
        image, mounted = self.directory / f"{name}.img", self.directory / f"{name}.disk"
        with open(image, "wb") as file:
            file.truncate(size_bytes)
        run("mkfs.ext4", "-q", "-F", "-m0", image)
        mounted.mkdir()
        run("mount", "-o", "loop", image, mounted)
        self._disks.append(mounted)
        return mounted

    def remove_disk(self, mounted: Path) -> None:
        """Take a disk away; nobody may be using it."""
        self._disks.remove(mounted)
        umount = ["umount", str(mounted)]
        wait_for(lambda: subprocess.run(umount).returncode == 0, f"unmounting {mounted}", 60)
        mounted.rmdir()
        mounted.with_suffix(".img").unlink()

    def close(self) -> None:
        """Unmount and remove everything."""
        for disk in list(self._disks):
            self.remove_disk(disk)
        shutil.rmtree(self.directory)
        os.close(self._lock)


def remove_stale(directory: Path) -> None:
    """Remove what a killed run left in its directory: processes that name it and what they had
    started, mounts below it, and the directory itself. Its lock is ours: nobody uses it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            named = str(directory) in (entry / "cmdline").read_bytes().decode(errors="replace")
            children = (entry / "task" / entry.name / "children").read_text().split()
        except OSError:
            continue  # it ended just now
        for pid in [*children, entry.name] if named else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{directory}/")), reverse=True):
        run("umount", "-l", mount, check=False)
    shutil.rmtree(directory, ignore_errors=True)


class TestHosts:
    """Hosts with an address, an sshd and a disk each; `/srv` is the disk.

    Faults: `kill` (power off, without a word) and `start`; `pause` and `resume` (hangs, connections
    stay); `cut(a, b)` (no packet either way), `deafen(a, b)` (none from b to a), `cut(a)` (from
    everybody) and `heal`; `slow` (a share of a CPU); `shape` (bits a second, both ways);
    `fill_disk`, `free_disk`.
    """

    __test__ = False
    site: Site
    names: list[str]

    def address(self, host: str) -> str:
        raise NotImplementedError

    def disk(self, host: str) -> Path:
        """Where the host's /srv is on this machine."""
        raise NotImplementedError

    def kill(self, host: str) -> None:
        raise NotImplementedError

    def start(self, host: str) -> None:
        raise NotImplementedError

    def pause(self, host: str) -> None:
        raise NotImplementedError

    def resume(self, host: str) -> None:
        raise NotImplementedError

    def cut(self, host: str, other: str | None = None) -> None:
        raise NotImplementedError

    def deafen(self, host: str, other: str) -> None:
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError

    def slow(self, host: str, share: float) -> None:
        raise NotImplementedError

    def shape(self, host: str, rate: str) -> None:
        raise NotImplementedError

    def run(self, host: str, *argv: str, check: bool = True) -> str:
        """Run a command on a host."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def host_key(self, host: str) -> str:
        """Return the public host key, as known_hosts has it."""
        raise NotImplementedError

    def fill_disk(self, host: str) -> None:
        """Leave no room at all on a host's disk."""
        taken, step = 0, 1 << 28
        with open(self.disk(host) / "filler", "ab") as file:
            while step >= 1024:
                try:
                    os.posix_fallocate(file.fileno(), taken, step)
                    taken += step
                except OSError:
                    step //= 2

    def free_disk(self, host: str) -> None:
        """Give the room back."""
        (self.disk(host) / "filler").unlink()

    def wait_for_sshd(self, host: str) -> None:
        """Return once the host can be logged in to."""
        import socket

        def answers() -> bool:
            try:
                with socket.create_connection((self.address(host), 22), 1.0) as sock:
                    sock.settimeout(2.0)
                    return sock.recv(4) == b"SSH-"
            except OSError:
                return False

        wait_for(answers, f"sshd of {host}", 60)

    def processes(self, host: str) -> list[str]:
        """Return the command lines of the daemons that run on a host."""
        said = self.run(host, "sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
        return [word for word in said.split("--host") if f" {host} --dir" in word]


def sshd_config(host_key: str, authorized_keys: str, extra: str = "") -> str:
    """Return the configuration of a test host's sshd."""
    return f"""\
Port 22
ListenAddress 0.0.0.0
HostKey {host_key}
AuthorizedKeysFile {authorized_keys}
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
UseDNS no
PidFile none
Subsystem sftp internal-sftp
PrintMotd no
{extra or "MaxStartups 10:30:100"}
"""
