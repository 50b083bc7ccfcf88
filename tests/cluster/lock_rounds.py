"""Faults of a lock cell on three real hosts, judged by what its clients were told.

`test_lock_group.py` does one of each on the cell alone; `rounds.py` has the same clients beside
those of the dfs and of jobs, and many rounds.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from mrstream.cluster.config.config import LOCK_MASTER, Cluster, LockConfig
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.leader.group_view import look_at_group
from mrstream.lock.client.client import CellClient
from mrstream.lock.client.handle import Held
from mrstream.lock.errors import SessionExpired
from tests.cluster.local import LocalCluster, wait_for
from tests.cluster.machine import TestHosts
from tests.cluster.netns import NetnsHosts

LIMIT_S = 120.0
"""Only a net: a crowded machine takes long, a broken one for ever."""
FAULTS = ("kill", "stop", "cut")
MORE = "masters: [h1, h2, h3]\nlock: {}\n"
HOLDERS, COUNTERS, WRITERS = 4, 2, 2
SESSION_S = LockConfig().session_s


class Starved(AssertionError):
    """A session was lost, and its program had not run for longer than a lease: rightly so."""


class Pulse(threading.Thread):
    """How long this process stood still at most, since somebody asked: on a crowded machine it may
    not be given a core for longer than its sessions last, and no cell can help that."""

    def __init__(self, stopped: threading.Event) -> None:
        super().__init__(name="pulse", daemon=True)
        self._stopped = stopped
        self.longest_s = 0.0

    def run(self) -> None:
        before_s = time.monotonic()
        while not self._stopped.wait(0.1):
            now_s = time.monotonic()
            self.longest_s = max(self.longest_s, now_s - before_s)
            before_s = now_s


class LockUsers:
    """Programs that use a cell all the time: some hold a lock for good, some count under one, some
    write; they know what they were told."""

    def __init__(self, cluster: Cluster, holders: int = HOLDERS) -> None:
        self._cluster, self._holders = cluster, holders
        self._stop = threading.Event()
        self._pulse = Pulse(self._stop)
        self._threads: list[threading.Thread] = []
        self._clients: list[CellClient] = []
        self.errors: list[str] = []
        self.held: list[tuple[Held, str]] = []
        self.written: dict[str, int] = {}
        """The last value of each file that a put was acknowledged with."""
        self.counted = 0
        self._mutex = threading.Lock()

    def begin(self) -> None:
        self._pulse.start()
        setup = self._client()
        setup.put("/ls/local/counter", b"0")
        for at in range(self._holders):
            held = self._client().acquire(f"/ls/local/held-{at}", delay_s=10.0)
            self.held.append((held, held.sequencer))
        for at in range(COUNTERS):
            self._thread(self._count, self._client(), at)
        for at in range(WRITERS):
            self.written[f"/ls/local/file-{at}"] = 0
            self._thread(self._write, self._client(), at)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        for client in self._clients:
            client.close()

    def _client(self) -> CellClient:
        client = CellClient(self._cluster, user="tester").open_session()
        self._clients.append(client)
        return client

    def _thread(self, work: Callable[[CellClient, int], None], client: CellClient, at: int) -> None:
        def run() -> None:
            try:
                work(client, at)
            except ClusterError as error:
                self.errors.append(f"{work.__name__} {at}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _count(self, client: CellClient, at: int) -> None:
        """A lock that does not exclude, or a write that is done twice, shows in the sum."""
        while not self._stop.wait(0.05):
            with client.acquire("/ls/local/counter-lock"):
                value = int(client.get("/ls/local/counter"))
                client.put("/ls/local/counter", str(value + 1).encode())
                with self._mutex:
                    self.counted += 1

    def _write(self, client: CellClient, at: int) -> None:
        number, path = 0, f"/ls/local/file-{at}"
        while not self._stop.wait(0.02):
            number += 1
            client.put(path, str(number).encode())
            self.written[path] = number

    def check_errors(self) -> None:
        """No program has met an error that it should not."""
        if self.errors:
            self.check_pulse(str(self.errors))
        assert not self.errors, self.errors

    def mark(self) -> dict[str, int]:
        """How far the writers are, for `go_on_after`."""
        return dict(self.written)

    def go_on_after(self, mark: dict[str, int]) -> bool:
        """Has every writer been told two more? The first may have been on its way before."""
        return all(self.written[path] > number + 1 for path, number in mark.items())

    def judge(self) -> None:
        """No lock is lost, no acknowledged put is lost, nothing was done twice."""
        try:
            self._judge()
        except (AssertionError, SessionExpired) as error:
            self.check_pulse(str(error))
            raise AssertionError(str(error)) from error
        self._pulse.longest_s = 0.0

    def check_pulse(self, lost: str) -> None:
        """Something was lost: raise `Starved` where that is nobody's fault."""
        still_s = self._pulse.longest_s
        if still_s > SESSION_S:
            raise Starved(f"its clients stood still for {still_s:.0f} s: {lost}") from None

    def _judge(self) -> None:
        self.check_errors()
        with CellClient(self._cluster, user="judge").open_session() as judge:
            for held, sequencer in self.held:
                state = judge.lock_state(held.handle.handle.path)
                assert judge.check(sequencer), f"{sequencer} is lost: {state}"
                assert held.handle.sequencer() == sequencer
            for path, acked in self.mark().items():
                assert int(judge.get(path)) >= acked, f"{path}: {acked} is lost"
            with judge.acquire("/ls/local/counter-lock"):
                with self._mutex:
                    counted = self.counted
                assert int(judge.get("/ls/local/counter")) == counted


class Cell:
    """Three hosts with one member each, and programs that use the cell all the time."""

    def __init__(self, hosts: TestHosts, directory: Path) -> None:
        assert isinstance(hosts, NetnsHosts)
        self.hosts = hosts
        self.cluster = LocalCluster(
            directory,
            3,
            roles=[LOCK_MASTER],
            addresses=[hosts.address(name) for name in hosts.names],
            within={name: hosts.enter(name) for name in hosts.names},
            more=MORE,
        )
        self.users = LockUsers(self.cluster.cluster)

    def __enter__(self) -> Cell:
        try:
            self.cluster.start_all()
            self.users.begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for host in self.cluster.hosts:
                print(host, self.cluster.output(LOCK_MASTER, host))
        self.close()

    def close(self) -> None:
        self.hosts.heal()
        self.users.close()
        self.cluster.close()

    # --- rounds

    def leader(self) -> str:
        return wait_for(
            lambda: look_at_group(self.cluster.cluster, LOCK_MASTER).leader, LIMIT_S, "a leader"
        )

    def round(self, fault: str) -> float:
        """Break the leader; return the seconds until another has acknowledged a change."""
        leader = self.leader()
        pid = self.cluster.pid(LOCK_MASTER, leader)
        began_s = time.monotonic()
        if fault == "kill":
            self.cluster.kill(LOCK_MASTER, leader)
        elif fault == "stop":
            self.cluster.signal(LOCK_MASTER, leader, signal.SIGSTOP)
        else:
            self.hosts.cut(leader)
        users, before = self.users, self.users.mark()
        wait_for(
            lambda: users.errors or users.go_on_after(before),
            LIMIT_S,
            f"changes to be acknowledged after a {fault} of {leader}",
            0.01,
        )
        took_s = time.monotonic() - began_s
        users.check_errors()
        assert self.leader() != leader
        if fault == "kill":
            self.cluster.launch(LOCK_MASTER, leader)
        elif fault == "stop":
            self.cluster.signal(LOCK_MASTER, leader, signal.SIGCONT)
        else:
            self.hosts.heal()
        self._await_shadow(leader)
        if fault != "kill":
            assert self.cluster.is_up(LOCK_MASTER, leader)
            assert self.cluster.pid(LOCK_MASTER, leader) == pid
        return took_s

    def _await_shadow(self, host: str) -> None:
        """Whoever led comes back and follows; nobody is left behind."""

        def is_back() -> bool:
            view = look_at_group(self.cluster.cluster, LOCK_MASTER)
            member = view.members[host]
            return member.state == "shadow" and 0.0 <= member.behind_s < 5.0

        wait_for(is_back, LIMIT_S, f"{host} to come back as a shadow")


def play(hosts: TestHosts, directory: Path, faults: list[str]) -> dict[str, list[float]]:
    """Do these, one after the other; return the seconds of each by kind."""
    took_s: dict[str, list[float]] = {}
    with Cell(hosts, directory) as cell:
        for fault in faults:
            took_s.setdefault(fault, []).append(cell.round(fault))
            cell.users.judge()
            print(f"{fault}: {took_s[fault][-1]:.1f} s", flush=True)
    return took_s
