"""A cluster on test hosts, driven as a user would: by `mrstream` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mrstream.cluster.config.config import Cluster, load
from mrstream.cluster.config.state import read_identity
from tests.cluster.machine import TestHosts

MRSTREAM = str(Path(sys.executable).parent / "mrstream")


class Operator:
    """A person with a home directory, a key and a known_hosts, at this machine's keyboard."""

    def __init__(self, home: Path, hosts: TestHosts) -> None:
        self.home = home
        self.hosts = hosts
        ssh = home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        self.known_hosts = ssh / "known_hosts"
        self.know(*hosts.names)
        self.key = hosts.site.key
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "MRSTREAM_HOME": str(home / ".mrstream"),
            "LANG": "C.UTF-8",
        }

    def know(self, *names: str) -> None:
        """Have these hosts in known_hosts, and no others."""
        lines = [f"{self.hosts.address(name)} {self.hosts.host_key(name)}" for name in names]
        self.known_hosts.write_text("\n".join(lines) + "\n")

    def write_cluster(self, name: str = "t", **changes: Any) -> Path:
        """Write a cluster file for all test hosts, with one master unless `masters` is among the
        changes (None: as many as there are by themselves); return its path."""
        document: dict[str, Any] = {
            "name": name,
            "install": "none",
            "python": sys.executable,
            "ports": {"base": 7700},
            "masters": self.hosts.names[:1],
            "defaults": {"user": "root", "key": str(self.key), "dir": "/srv/mrstream"},
            "hosts": {host: {"address": self.hosts.address(host)} for host in self.hosts.names},
            "dfs": {"chunk_size": "1MiB", "replication": min(3, len(self.hosts.names))},
        }
        for key, value in changes.items():
            if isinstance(value, dict) and isinstance(document.get(key), dict):
                document[key] = {**document[key], **value}
            else:
                document[key] = value
        document = {key: value for key, value in document.items() if value is not None}
        path = self.home / f"{name}.yaml"
        path.write_text(json.dumps(document))  # JSON is YAML
        return path

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Begin a command and return at once."""
        return subprocess.Popen(
            [MRSTREAM, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.home,
        )

    def run(self, *words: str | Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"mrstream {words} did not end:\n{out}\n{err}") from None
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def good(self, *words: str | Path, timeout_s: float = 120) -> str:
        """Run a command that must succeed; return its output."""
        ended = self.run(*words, timeout_s=timeout_s)
        assert ended.returncode == 0, f"mrstream {words}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def refused(self, *words: str | Path, timeout_s: float = 120) -> str:
        """Run a command that must fail; return what it said about it."""
        ended = self.run(*words, timeout_s=timeout_s)
        assert ended.returncode != 0, f"mrstream {words} went through: {ended.stdout}"
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.stdout + ended.stderr

    def status(self, *words: str | Path) -> dict[str, Any]:
        """Return what `cluster status --json` says."""
        ended = self.run("cluster", "status", "--json", *words)
        document: dict[str, Any] = json.loads(ended.stdout)
        roles = [role for host in document["hosts"].values() for role in host["roles"].values()]
        assert (ended.returncode == 0) == all(role["state"] == "up" for role in roles)
        return document

    def roles(self, state: str, *words: str | Path) -> set[tuple[str, str]]:
        """Return (host, role) of all roles in a state."""
        return {
            (host, role)
            for host, known in self.status(*words)["hosts"].items()
            for role, said in known["roles"].items()
            if said["state"] == state
        }

    def cluster(self, name: str = "t") -> Cluster:
        """Return the cluster, to talk to its daemons directly."""
        kept = self.home / ".mrstream" / "clusters" / name
        return Cluster(load(str(kept / "cluster.yaml")), read_identity(str(kept / "identity.json")))


def no_daemon_left(hosts: TestHosts) -> bool:
    """Whether nothing of a cluster runs on any host."""
    return not any(hosts.processes(name) for name in hosts.names)


def all_roles(operator: Operator, *words: str | Path) -> set[tuple[str, str]]:
    """Every role on every host."""
    hosts = operator.status(*words)["hosts"]
    return {(host, role) for host, known in hosts.items() for role in known["roles"]}
