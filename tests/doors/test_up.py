"""`mrstream cluster up` with a gateway: started, reported, examined, stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

MRSTREAM = str(Path(sys.executable).parent / "mrstream")


class Desk:
    """A user with one local host on an address that no other test run uses."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.address = f"127.{50 + os.getpid() % 50}.{os.getpid() // 50 % 250}.1"
        self.environment = {**os.environ, "MRSTREAM_HOME": str(home / "state")}
        self.environment.pop("MRSTREAM_CLUSTER", None)

    def write(self, **more: object) -> None:
        host = {"address": self.address, "via": "local", "dir": str(self.home / "h1")}
        document = {"name": "desk", "hosts": {"h1": host}, "dfs": {"replication": 1}, **more}
        (self.home / "cluster.yaml").write_text(json.dumps(document))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MRSTREAM, *words], capture_output=True, text=True, cwd=self.home,
            env=self.environment, timeout=120,
        )  # fmt: skip

    def good(self, *words: str) -> str:
        ended = self.run(*words)
        assert ended.returncode == 0, f"{words}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.run("cluster", "down", "--purge", "--yes")


def test_a_gateway_comes_and_goes_with_its_cluster(desk: Desk) -> None:
    """A cluster without one gets it by `up`; its identity gains keys and keeps its secret."""
    desk.write()
    desk.good("cluster", "up")
    assert "no gateway" in desk.run("cluster", "ca").stderr
    assert "no gateway" in desk.run("key", "add", "x").stderr
    identity = desk.home / "state" / "clusters" / "desk" / "identity.json"
    before = json.loads(identity.read_text())

    desk.write(gateway={"hosts": ["h1"], "trusted": ["0.0.0.0/0"]})
    said = desk.good("cluster", "up")

    assert "web.gateway is up" in said
    after = json.loads(identity.read_text())
    assert after["secret"] == before["secret"] and len(after["door"]) == 3
    assert f"https://h1:{7730}" in desk.good("cluster", "status")
    (desk.home / "ca.pem").write_text(desk.good("cluster", "ca"))
    lines = dict(line.split() for line in desk.good("key", "add", "me").splitlines())
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(desk.home / "ca.pem")
        session.auth = (lines["id"], lines["secret"])
        url = f"https://{desk.address}:7730/webhdfs/v1/f"
        assert session.put(f"{url}?op=CREATE", data=b"hello").status_code == 201
    assert desk.good("dfs", "-cat", "/f") == "hello"
    assert '"operation":"CREATE"' in desk.good("cluster", "logs", "h1", "web.gateway", "--audit")
    doctor = desk.run("cluster", "doctor")
    assert doctor.returncode == 1 and "gateway.trusted has 0.0.0.0/0" in doctor.stdout
    assert "no process is left" in desk.good("cluster", "down")
