"""A cluster on test hosts with the hands of a `LocalCluster`: any daemon can be killed and started.

It comes up by `mrstream cluster up`, over SSH. A daemon that is started here later is started over
SSH too, as the launcher does it, and may run some code first: a fault that waits for its moment.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mrstream.cluster.agent.processes import module_of
from mrstream.cluster.errors import Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.messages import Health, HealthReply
from mrstream.cluster.wire.network import Connection
from mrstream.dfs.client.client import DfsClient, client_of
from tests.cluster.hosted import MRSTREAM, Operator
from tests.cluster.job_faults import ROOM_DFS, SLOTS
from tests.cluster.local import READY_S_MAX, wait_for

NAME = "t"
ROOM = {
    "dfs": {**ROOM_DFS, "heartbeat": "500ms", "safe_mode": "5s"},
    "defaults": {"slots": SLOTS},
}
"""What a cluster file for jobs that are disturbed has of its own."""


class HostedCluster:
    """All daemons on all hosts; `h1` has the masters."""

    shared = "/srv/shared"
    """A directory that programs on every host see by this name: each host has its own."""

    def __init__(self, operator: Operator, **changes: Any) -> None:
        """Bring the cluster up; `changes` are those to its cluster file."""
        self.operator = operator
        self.hosts = operator.hosts.names
        self._stopped: set[tuple[str, str]] = set()
        self._clients: list[DfsClient] = []
        for host in self.hosts:
            self.seen(host, self.shared).mkdir()
        # What is killed here stays away until it is started here: no guard does it.
        path = operator.write_cluster(NAME, guard=False, **changes)
        operator.good("cluster", "up", "-f", path)
        self.cluster = operator.cluster(NAME)
        self._pids: dict[tuple[str, str], int] = {
            (host, role): said["pid"]
            for host, known in operator.status()["hosts"].items()
            for role, said in known["roles"].items()
        }

    def seen(self, host: str, path: str) -> Path:
        """Where this machine sees a file of a host's disk."""
        return self.operator.hosts.disk(host) / path.removeprefix("/srv/")

    def hosts_of(self, role: str) -> list[str]:
        """Where a role runs."""
        return self.hosts[:1] if role.endswith(".master") else self.hosts

    # -- daemons --------------------------------------------------------------------------

    def launch(self, role: str, host: str, prelude: str = "") -> int:
        """Start a daemon over SSH without waiting for it; return its pid there."""
        place = f"/srv/mrstream/{NAME}/{host}"
        words = ["-m", module_of(role)]
        if prelude:
            name = module_of(role)
            run = f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
            words = ["-c", f"{prelude}\n{run}"]
        daemon = [sys.executable, "-P", *words, "--host", host, "--dir", place]
        marks = [f"MRSTREAM_PLACE={place}", f"MRSTREAM_ROLE={role}"]
        script = f'echo $$; exec env "$@" >>logs/{role}.out 2>&1'
        started = ["setsid", "-f", "sh", "-c", script, "sh", *marks, *daemon]
        said = self.ssh(host, f"cd {place} && {shlex.join(started)} </dev/null")
        self._pids[host, role] = int(said)
        return int(said)

    def start(self, role: str, host: str, prelude: str = "") -> int:
        """Start a daemon and wait until it is ready; return its pid there."""
        pid = self.launch(role, host, prelude)
        self.wait_ready(role, host)
        return pid

    def is_up(self, role: str, host: str) -> bool:
        """Whether a daemon runs, as far as it is up to us."""
        return (host, role) in self._pids

    def kill(self, role: str, host: str) -> None:
        """kill -9, and wait for the end."""
        pid = self._pids.pop((host, role))
        self._stopped.discard((host, role))
        gone = f"kill -9 {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.01; done"
        self.operator.hosts.run(host, "sh", "-c", gone)

    def signal(self, role: str, host: str, number: signal.Signals) -> None:
        """SIGSTOP a daemon, or SIGCONT one that was stopped."""
        if number is signal.SIGCONT and (host, role) not in self._stopped:
            return
        self.operator.hosts.run(host, "kill", f"-{int(number)}", str(self._pids[host, role]))
        (self._stopped.discard if number is signal.SIGCONT else self._stopped.add)((host, role))

    def power_off(self, host: str) -> None:
        """The host is gone, without a word, with all that runs there."""
        self.operator.hosts.kill(host)
        for key in [key for key in self._pids if key[0] == host]:
            del self._pids[key]

    def power_on(self, host: str) -> None:
        """The host is there again; nothing runs there yet."""
        self.operator.hosts.start(host)

    def health(self, role: str, host: str) -> HealthReply:
        """Ask a daemon how it is."""
        address = self.cluster.config.address(host, role)
        with Connection(address, self.cluster.identity()) as connection:
            reply: HealthReply = connection.call(Health(), 10.0)
            return reply

    def wait_ready(self, role: str, host: str) -> HealthReply:
        """Wait until a daemon says that it serves."""

        def ready() -> HealthReply | None:
            with contextlib.suppress(Unavailable):
                reply = self.health(role, host)
                return reply if reply.ready and reply.pid == self._pids[host, role] else None
            return None

        try:
            return wait_for(ready, READY_S_MAX, f"{role} on {host} to be ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output(role, host)}") from None

    def output(self, role: str, host: str) -> str:
        """What a daemon said and logged, its end."""
        place = self.seen(host, f"/srv/mrstream/{NAME}/{host}/logs")
        paths = [place / f"{role}.out", place / f"{role}.log"]
        return "\n".join(path.read_text()[-4000:] for path in paths if path.exists())

    # -- a user ---------------------------------------------------------------------------

    def client(self, retry_s: float = 60.0) -> DfsClient:
        """A client of the file system, closed with the cluster."""
        client = client_of(self.cluster, user="tester", retry=RetryPolicy(total_s=retry_s))
        self._clients.append(client)
        return client

    def mrstream(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run `mrstream WORDS` as the operator."""
        options.setdefault("timeout", 120)
        return subprocess.run(
            [MRSTREAM, *words],
            stdin=subprocess.DEVNULL,
            env=self.operator.environment,
            cwd=self.operator.home,
            capture_output=True,
            check=False,
            **options,
        )

    def ssh(self, host: str, command: str) -> str:
        """Run a command on a host over SSH; return what it said."""
        known = f"UserKnownHostsFile={self.operator.known_hosts}"
        login = ["ssh", "-F", "none", "-i", str(self.operator.key), "-o", known]
        login += ["-o", "BatchMode=yes", f"root@{self.operator.hosts.address(host)}"]
        ended = subprocess.run([*login, command], capture_output=True, text=True, env=os.environ)
        assert ended.returncode == 0, f"{host}: {command}: {ended.stderr}"
        return ended.stdout

    def close(self) -> None:
        """Forget the clients; the daemons go with their hosts."""
        for client in self._clients:
            client.close()
