"""A real cluster on this machine: daemons as processes on 127.0.0.x, in a temporary directory.

    with LocalCluster(tmp_path, 3) as cluster:
        cluster.kill("dfs.chunkserver", "h2")
        ...
        cluster.start("dfs.chunkserver", "h2")

Every process is ended by its pid, and only those started here; all of them end with this one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from mrstream.cluster.agent.processes import module_of
from mrstream.cluster.config.config import (
    CELL_MARK,
    GATEWAY,
    Cluster,
    ClusterConfig,
    base_role,
    load,
)
from mrstream.cluster.config.doors import with_door_keys
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import NEW_MARK, Secret, write_private
from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.cluster.leader.forming import form_group
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.messages import Health, HealthReply
from mrstream.cluster.wire.network import Connection
from mrstream.dfs.client.client import DfsClient, client_of
from tests.cluster.machine import LOCKS

MASTER = "dfs.master"
CHUNKSERVER = "dfs.chunkserver"
DFS_ROLES = (MASTER, CHUNKSERVER)
PORTS = 40
READY_S_MAX = 60.0
# A daemon ends with the test run that started it, also when that is killed.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
T = TypeVar("T")
_root = Path(__file__).parent.parent.parent


class LocalCluster:
    """`count` hosts h1 … hn; h1 has the masters."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        *,
        roles: Sequence[str] = DFS_ROLES,
        dfs: dict[str, str] | None = None,
        mapreduce: dict[str, str] | None = None,
        racks: Sequence[str] = (),
        disks: int = 0,
        slots: int = 0,
        environment: dict[str, str] | None = None,
        name: str = "test",
        addresses: Sequence[str] = (),
        within: Mapping[str, Sequence[str]] | None = None,
        gateway: str = "",
        extras: Sequence[str] = (),
        more: str = "",
    ) -> None:
        """`slots` are those of each host, its cores if 0; `addresses` are those of the hosts if not
        127.0.0.x; `within` gives for each host the words that run a command in its network;
        `gateway` is that part of cluster.yaml, `more` the rest of it."""
        self.directory = directory
        self._within = dict(within or {})
        self.roles = tuple(roles)
        self.hosts = [f"h{number}" for number in range(1, count + 1)]
        self.environment = {
            **os.environ,
            "MRSTREAM_HOME": str(directory / "home"),
            **(environment or {}),
        }
        self.environment.pop("MRSTREAM_CLUSTER", None)
        self._processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._clients: list[DfsClient] = []
        settings = {
            "chunk_size": "1MiB", "replication": str(min(3, count)), "dead_after": "4s",
            "heartbeat": "200ms", "lease": "4s", "reserve": "0%",
            "safe_mode": "3s",
        }  # fmt: skip
        settings.update(dfs or {})
        base, self._ports = _take_ports(count)
        lines = [f"name: {name}", f"ports: {{base: {base}}}", "hosts:"]
        for number, host in enumerate(self.hosts, 1):
            rack = f", rack: {racks[number - 1]}" if racks else ""
            paths = [str(directory / f"{host}-disk{disk}") for disk in range(disks)]
            where = f", disks: [{', '.join(paths)}]" if disks else ""
            if slots:
                where += f", slots: {slots}"
            address = addresses[number - 1] if addresses else f"127.0.0.{number}"
            lines.append(
                f"  {host}: {{address: {address}, via: local, "
                f"dir: {directory / 'hosts'}{rack}{where}}}"
            )
        lines.append("dfs: {" + ", ".join(f"{k}: {v}" for k, v in settings.items()) + "}")
        if extras:
            lines.append(f"extras: [{', '.join(extras)}]")
        if mapreduce:
            lines.append("mapreduce:")
            lines += [f"  {key}: {value!r}" for key, value in mapreduce.items()]
        if gateway:
            lines.append(f"gateway: {gateway}")
        text = "\n".join(lines) + "\n" + more
        self.secret = Secret.new()
        if gateway:
            self.secret = with_door_keys(self.secret, read_config(text))
        home = directory / "home" / "clusters" / name
        self.file = str(home / "cluster.yaml")
        for place in [home, *(self.host_directory(host, name) for host in self.hosts)]:
            write_private(str(place / "cluster.yaml"), text)
            write_private(str(place / "identity.json"), self.secret.to_text())
        # As `up` does: nothing of this cluster can be anywhere yet.
        self.config: ClusterConfig = load(self.file)
        for role in self.config.dfs_masters:
            write_private(str(self.host_directory("h1", name) / role / NEW_MARK), "")
        write_private(str(directory / "home" / "current"), name + "\n")
        self.cluster = Cluster(self.config, self.secret)
        self.shared = str(directory / "shared")
        """A directory that programs on every host see, by this name."""
        os.mkdir(self.shared)

    def seen(self, host: str, path: str) -> Path:
        """Where this machine sees a file of a host."""
        return Path(path)

    def host_directory(self, host: str, name: str = "test") -> Path:
        """What a host keeps of this cluster."""
        return self.directory / "hosts" / name / host

    # -- life -----------------------------------------------------------------------------

    def __enter__(self) -> LocalCluster:
        try:
            self.start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start_all(self) -> None:
        """Start every role everywhere and wait until all are ready."""
        for role in self.roles:
            for host in self.hosts_of(role):
                self.launch(role, host)
        for role in self.roles:
            if base_role(role).endswith(".master"):
                form_group(self.cluster, role)
        for role in self.roles:
            for host in self.hosts_of(role):
                self.wait_ready(role, host)

    def hosts_of(self, role: str) -> list[str]:
        """Where a role runs."""
        if role == GATEWAY:
            return list(self.config.gateway.hosts) if self.config.gateway else []
        is_master = base_role(role).endswith(".master")
        return list(self.config.masters_of(role)) if is_master else self.hosts

    def launch(self, role: str, host: str, prelude: str = "") -> int:
        """Start a daemon without waiting for it; return its pid.

        `prelude` is Python code that the process runs first: a fault that waits for its moment.
        """
        place = self.host_directory(host, self.config.name)
        (place / "logs").mkdir(parents=True, exist_ok=True)
        cell = role.partition(CELL_MARK)[2]
        start = ["-m", module_of(role)]
        if prelude:
            name = module_of(role)
            run = f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
            start = ["-c", f"{prelude}\n{run}"]
        with open(place / "logs" / f"{role}.out", "ab") as output:
            process = subprocess.Popen(
                [
                    *(*self._within.get(host, ()), *ENDS_WITH_US),
                    *(sys.executable, "-P", *start, "--host", host, "--dir", str(place)),
                    *(("--cell", cell) if cell else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=place,
                env={**self.environment, "PYTHONPATH": str(_root)},
                start_new_session=True,
            )
        self._processes[role, host] = process
        return process.pid

    def start(self, role: str, host: str, prelude: str = "") -> int:
        """Start a daemon and wait until it is ready; return its pid."""
        pid = self.launch(role, host, prelude)
        self.wait_ready(role, host)
        return pid

    def is_up(self, role: str, host: str) -> bool:
        """Whether a daemon's process is there."""
        process = self._processes.get((role, host))
        return process is not None and process.poll() is None

    def pid(self, role: str, host: str) -> int:
        """The pid of a daemon that was started here."""
        return self._processes[role, host].pid

    def kill(self, role: str, host: str) -> None:
        """kill -9, and wait for the end."""
        process = self._processes.pop((role, host))
        process.kill()
        process.wait()

    def signal(self, role: str, host: str, number: signal.Signals) -> None:
        """Send a signal to a daemon, such as SIGSTOP or SIGCONT."""
        os.kill(self.pid(role, host), number)

    def wait_exit(self, role: str, host: str, seconds: float = READY_S_MAX) -> int:
        """Wait until a daemon has ended by itself; return its exit status."""
        status = self._processes[role, host].wait(seconds)
        del self._processes[role, host]
        return status

    def wait_ready(self, role: str, host: str, seconds: float = READY_S_MAX) -> HealthReply:
        """Wait until a daemon says that it serves."""

        def ready() -> HealthReply | None:
            process = self._processes.get((role, host))
            if process is not None and process.poll() is not None:
                raise AssertionError(
                    f"{role} on {host} ended with {process.returncode}:\n{self.output(role, host)}"
                )
            try:
                reply = self.health(role, host)
            except Unavailable:
                return None
            return reply if reply.ready else None

        return wait_for(ready, seconds, f"{role} on {host} to be ready")

    def health(self, role: str, host: str) -> HealthReply:
        """Ask a daemon how it is."""
        with Connection(self.config.address(host, role), self.cluster.identity()) as connection:
            reply: HealthReply = connection.call(Health(), 10.0)
            return reply

    def output(self, role: str, host: str) -> str:
        """What a daemon said and logged, its end."""
        place = self.host_directory(host, self.config.name) / "logs"
        texts = [
            path.read_text(errors="replace")[-4000:]
            for path in (place / f"{role}.out", place / f"{role}.log")
            if path.exists()
        ]
        return "\n".join(texts)

    def client(self, retry_s: float = 30.0) -> DfsClient:
        """A client of the file system, closed with the cluster."""
        client = client_of(self.cluster, user="tester", retry=RetryPolicy(total_s=retry_s))
        self._clients.append(client)
        return client

    def close(self) -> None:
        """End everything that was started here."""
        for client in self._clients:
            client.close()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        self._ports.close()

    # -- commands -------------------------------------------------------------------------

    def begin(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Begin `mrstream ARGUMENTS`, with pipes for its input and output."""
        code = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**self.environment, "PYTHONPATH": str(_root)},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            **options,
        )

    def mrstream(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run `mrstream ARGUMENTS` as a user of this cluster would."""
        options.setdefault("cwd", self.directory)
        options.setdefault("timeout", 120)
        code = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"
        environment = {**self.environment, "PYTHONPATH": str(_root)}
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            capture_output=True,
            check=False,
            **options,
        )


def wait_for(
    condition: Callable[[], T | None], seconds: float, what: str, every_s: float = 0.05
) -> T:
    """Poll until the condition gives something true; fail after that long."""
    deadline_s = time.monotonic() + seconds
    last: BaseException | None = None
    while True:
        asked_s = time.monotonic()
        try:
            found = condition()
        except ClusterError as error:
            found, last = None, error
        if found:
            return found
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {seconds:g} s for {what}" + (f": {last}" if last else ""))
        # A question that starts a process must not be what the hosts are busy with.
        time.sleep(max(every_s, min(1.0, 2 * (time.monotonic() - asked_s))))


_turns: Iterator[int] = itertools.count()


def _take_ports(count: int) -> tuple[int, BinaryIO]:
    """Give a base port from which all ports are free on all addresses, another at each call, and
    the lock that keeps other test processes away from it."""
    LOCKS.mkdir(exist_ok=True)
    # Below the ports that the system gives to outgoing connections.
    slots = range(10_000, 32_000, PORTS)
    first = os.getpid() * 7 + next(_turns)
    for step in range(len(slots)):
        base = slots[(first + step) % len(slots)]
        lock = open(LOCKS / f"ports-{base}", "ab")  # noqa: SIM115 - held while the cluster lives
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if all(
                _is_free(f"127.0.0.{host}", base + offset)
                for host in range(1, count + 1)
                for offset in range(PORTS)
            ):
                return base, lock
        lock.close()
    raise AssertionError("no free ports")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
