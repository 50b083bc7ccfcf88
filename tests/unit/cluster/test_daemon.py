"""The common part of a daemon, in a real process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret, write_private
from mrstream.cluster.daemon import EXIT_BUG, EXIT_REFUSED, _Gate
from mrstream.cluster.errors import DaemonFault, HostUnreachable, Unavailable
from mrstream.cluster.wire.messages import Health, HealthReply, Metrics, Stop
from mrstream.cluster.wire.network import Connection
from tests.unit.cluster.toy_role import Break, Toy

ROOT = Path(__file__).parents[3]
ROLE = "dfs.chunkserver"
_ports = itertools.count(20_000, 10)


def own_address() -> str:
    """An address of this process alone, where no port is taken: on 127.0.0.1 any port may be, for a
    moment, some other program's end of a connection."""
    pid = os.getpid()
    return f"127.{pid >> 16 & 127 | 128}.{pid >> 8 & 255}.{pid & 255}"


class Place:
    """A cluster's directory on a host, as a launcher would make it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        text = (
            f"name: t\nports: {{base: {next(_ports)}}}\n"
            f"hosts: {{h1: {{via: local, address: {own_address()}}}}}\n"
        )
        self.secret = Secret.new()
        (directory / "cluster.yaml").write_text(text)
        write_private(str(directory / "identity.json"), self.secret.to_text())
        self.cluster = Cluster(read_config(text), self.secret)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        place = ["--host", "h1", "--dir", str(self.directory)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.cluster.toy_role", *place],
            cwd=ROOT,
            env={**os.environ, "TOY_ROLE": ROLE},
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def connect(self) -> Connection:
        return Connection(
            self.cluster.config.address("h1", ROLE), self.cluster.identity(), role=ROLE
        )

    def health(self) -> HealthReply:
        deadline_s = time.monotonic() + 60
        while True:
            try:
                with self.connect() as connection:
                    reply: HealthReply = connection.call(Health(), 30.0)
                    if reply.ready:
                        return reply
            except Unavailable:
                pass
            assert time.monotonic() < deadline_s, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        path = self.directory / "logs" / f"{ROLE}.log"
        return path.read_text() if path.exists() else "no log"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def wait_for(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_it_answers_health_and_metrics_and_says_where_it_is(place: Place) -> None:
    process = place.start()
    health = place.health()

    assert (health.role, health.host, health.pid) == (ROLE, "h1", process.pid)
    assert health.detail == "playing"
    with place.connect() as connection:
        assert connection.call(Metrics()) == {"toys": 1.0}
    said = json.loads((place.directory / "run" / f"{ROLE}.json").read_text())
    assert said["pid"] == process.pid


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "Stop"])
def test_it_ends_in_order_when_told_to(place: Place, how: str) -> None:
    process = place.start()
    place.health()

    if how == "Stop":
        with place.connect() as connection:
            connection.call(Stop())
    else:
        process.send_signal(getattr(signal, how))

    assert process.wait(60) == 0
    assert (place.directory / ROLE / "stopped").read_text() == "x"
    assert not (place.directory / "run" / f"{ROLE}.json").exists()
    assert "stopping" in place.log()
    assert f"INFO {ROLE}: playing" in place.log()


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_bug_anywhere_stops_the_process_and_is_in_the_log(place: Place, in_thread: bool) -> None:
    """style.md: a bug is caught at the top of a daemon only, which stops."""
    process = place.start()
    place.health()

    with place.connect() as connection:
        # What the caller sees depends on who is quicker.
        with contextlib.suppress(DaemonFault, HostUnreachable):
            connection.call(Break(in_thread), 60.0)

    assert process.wait(60) == 70
    assert "ZeroDivisionError" in place.log()


def test_a_second_daemon_in_the_same_place_is_refused(place: Place) -> None:
    place.start()
    place.health()

    second = place.start()

    assert second.wait(60) == 3
    assert second.stderr is not None and b"already running" in second.stderr.read()
    assert place.health().ready


def test_after_kill_9_it_starts_again_without_any_help(place: Place) -> None:
    """Fault gate 26."""
    process = place.start()
    place.health()
    process.kill()
    process.wait()

    place.start()

    assert place.health().ready
    assert (place.directory / ROLE / "started").read_text() == "xx"


def test_a_port_that_is_taken_is_named(place: Place) -> None:
    port = place.cluster.config.port(ROLE)
    with socket.create_server((own_address(), port)):
        process = place.start()

        assert process.wait(60) == 1
        assert process.stderr is not None
        assert f"cannot listen on {own_address()}:{port}" in process.stderr.read().decode()


def test_the_diagnostic_log_has_requests_without_payload(place: Place) -> None:
    """GFS §5.3 (GFS-84)."""
    process = place.start()
    place.health()
    with place.connect() as connection:
        connection.call(Stop(grace_s=3.5))
    process.wait(60)

    text = (place.directory / "logs" / f"{ROLE}.rpc.log").read_text()
    assert "Stop grace_s=3.5 from=client@127.0.0.1:" in text
    assert place.secret.secret.hex() not in text + place.log()


@pytest.mark.parametrize("end", ["fail", "refuse"])
def test_a_daemon_that_must_end_does_though_its_last_words_find_no_room(end: str) -> None:
    """stderr is a file of the host's disk, which may be what is full."""
    program = (
        "from mrstream.cluster.daemon import Daemon\n"
        "from mrstream.cluster.errors import DiskFailed\n"
        "daemon = object.__new__(Daemon)\n"
        "daemon.role = 'toy'\n"
        f"daemon.{end}(DiskFailed('no space left'))\n"
    )
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", program], stderr=full, timeout=60)

    assert ended.returncode == {"fail": EXIT_BUG, "refuse": EXIT_REFUSED}[end]


@pytest.mark.parametrize("interpreter", ["", "/nowhere/python"])
def test_a_life_that_is_over_ends_whatever_stands_in_the_way(interpreter: str) -> None:
    """A deposed leader whose log cannot be closed, on a full disk, or whose Python is being
    replaced, must not live on."""
    program = (
        "import os, sys\n"
        "from mrstream.cluster.daemon import Daemon\n"
        "if 'SECOND' in os.environ:\n"
        "    sys.exit(7)\n"
        "os.environ['SECOND'] = '1'\n"
        f"sys.executable = {interpreter!r} or sys.executable\n"
        "class Log:\n"
        "    def close(self):\n"
        "        raise OSError(28, 'no space left')\n"
        "daemon = object.__new__(Daemon)\n"
        "daemon.role, daemon._daemon_log = 'toy', Log()\n"
        "daemon.restart('deposed')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, timeout=60)

    assert ended.returncode == (EXIT_BUG if interpreter else 7), ended.stderr


def test_a_daemon_that_is_starting_is_as_good_as_none() -> None:
    """F5: a leader that was killed may have done what it did not answer, and its next life does not
    know yet. Were that a refusal, the client would ask afresh, and be told that its file exists."""
    toy: Any = SimpleNamespace(role="toy")
    gate = _Gate(toy, Toy(toy))

    with pytest.raises(HostUnreachable, match="toy is starting or stopping"):
        gate.handlers()[Break](Break(), None)  # type: ignore[arg-type]
