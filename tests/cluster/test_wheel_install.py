"""`install: wheel`, the default: dependencies from the package index, onto a host that has one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosted import Operator
from tests.cluster.machine import Site, TestHosts, run, sshd_config


class LoopbackHost(TestHosts):
    """One sshd on a loopback address of this machine, which has the machine's way to the index."""

    def __init__(self) -> None:
        self.site = Site("loopback")
        self.names = ["h1"]
        key = self.site.directory / "hostkey"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        text = sshd_config(str(key), f"{self.site.key}.pub")
        text = text.replace("ListenAddress 0.0.0.0", f"ListenAddress {self.address('h1')}")
        (self.site.directory / "sshd").write_text(text)
        os.makedirs("/run/sshd", exist_ok=True)
        argv = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.site.directory / "sshd")]
        self._sshd = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        self.wait_for_sshd("h1")

    def address(self, host: str) -> str:
        return f"127.60.{self.site.number}.1"

    def host_key(self, host: str) -> str:
        return " ".join((self.site.directory / "hostkey.pub").read_text().split()[:2])

    def close(self) -> None:
        self._sshd.terminate()
        self._sshd.wait()
        self.site.close()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    host = LoopbackHost()
    made = Operator(tmp_path / "home", host)
    yield made
    made.run("cluster", "down", timeout_s=60)
    host.close()


def test_a_bare_host_gets_the_running_version_and_everything_it_needs(operator: Operator) -> None:
    """Nothing but a Python is there; afterwards the version that runs here runs there, and the
    programs of a job that says so find the libraries of the extras in the file."""
    place = operator.hosts.site.directory / "place"
    path = operator.write_cluster(
        install="wheel",
        python=str(Path(sys.base_prefix) / "bin" / "python3"),
        defaults={"dir": str(place)},
        dfs={"replication": 1},
        extras=["saw"],
    )

    said = operator.good("cluster", "up", "-f", path, timeout_s=280)

    assert "h1: installing mrstream-" in said and ") with saw\n" in said
    assert "cluster t is up: 1 host," in said
    (installed,) = place.glob("versions/*/venv-saw/bin/mrstream")
    answered = subprocess.run([str(installed), "dfs", "-help"], capture_output=True, text=True)
    assert answered.returncode == 0, answered.stderr
    (operator.home / "f").write_bytes(b"x" * 100_000)
    operator.good("dfs", "-put", "f", "/f")
    assert json.loads(operator.good("cluster", "status", "--json"))["chunks"]["total"] == 1
    (operator.home / "m.py").write_text(
        "import sys\nfrom google.protobuf.wrappers_pb2 import StringValue\n"
        "print(len({StringValue(value=line).SerializeToString() for line in sys.stdin}))\n"
    )
    (operator.home / "words").write_text("a\nb\na\nc\n")
    operator.good("dfs", "-put", "words", "/words")
    # As someone who has the extra too, and so with the mrstream that was installed there.
    job = ["-D", "mrstream.job.extras=saw", "-input", "/words", "-mapper", "m.py"]
    counted = subprocess.run(
        [str(installed), *job, "-reducer", "NONE"],
        capture_output=True,
        text=True,
        env=operator.environment,
        cwd=operator.home,
    )
    assert (counted.returncode, counted.stdout) == (0, "3\t\n"), counted.stderr
    assert "no process is left" in operator.good("cluster", "down")
