"""The common part of every daemon: arguments, one process per place, logs, signals, health.

A role is a module whose `main` calls `run(ROLE, build)`; it is started as
`python -P -m mrstream.ROLE --host NAME --dir DIR`, where DIR (the cluster's directory on that host)
holds `cluster.yaml` and `identity.json`; the daemon keeps its state in DIR/ROLE, its logs in
DIR/logs, and DIR/run/ROLE.json says that it runs. A bug anywhere, on the loop or in a thread, is
logged and ends the process at once (exit status 70): nothing is ever answered from a broken state.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from mrstream.cluster.agent.files import hold
from mrstream.cluster.agent.guard import guard_state
from mrstream.cluster.agent.processes import module_of
from mrstream.cluster.agent.watch import EXIT_BUG
from mrstream.cluster.clock import SystemClock
from mrstream.cluster.config.config import (
    CELL_MARK,
    DFS_MASTER,
    Cluster,
    ClusterConfig,
    HostConfig,
    load,
)
from mrstream.cluster.config.state import read_identity
from mrstream.cluster.errors import ClusterError, HostUnreachable
from mrstream.cluster.logs import DaemonLog, RpcLog
from mrstream.cluster.version import version
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.messages import GuardReply, Health, HealthReply, Metrics, Stop
from mrstream.cluster.wire.network import Handler, Peer, Server, new_event_loop

log = logging.getLogger(__name__)

EXIT_REFUSED = 1
EXIT_RUNNING = 3
STOP_GRACE_S = 10.0


class Service(Protocol):
    """What a role is to its daemon."""

    handlers: Mapping[type[Any], Handler]

    async def start(self) -> None:
        """Recover and begin. The daemon already listens, but refuses all requests but health
        until this returns."""

    async def stop(self) -> None:
        """Finish what was acknowledged and let go of everything."""

    def ready(self) -> tuple[bool, str]:
        """Whether it serves, and a few words about its state."""

    def metrics(self) -> dict[str, float]:
        """Return its counters."""

    def connected(self, peer: Peer) -> None:
        """A client has proven itself; nothing is known of it until it asks."""
        return

    def disconnected(self, peer: Peer) -> None:
        """Its connection has ended; who keeps nothing with one need not care."""
        return


class Daemon:
    """What a service gets from its daemon."""

    def __init__(self, role: str, cluster: Cluster, host: HostConfig, directory: str) -> None:
        self.role = role
        self.cluster = cluster
        self.config: ClusterConfig = cluster.config
        self.host = replace(host, disks=tuple(map(os.path.expanduser, host.disks)))
        self.directory = directory
        """The cluster's directory on this host."""
        self.state_directory = os.path.join(directory, role)
        """The role's own directory; it exists."""
        self.identity: Identity = cluster.identity(role, host.name)
        self.clock = SystemClock()
        self.since_s = time.time()
        self.loop = new_event_loop()
        self.stopping = asyncio.Event()
        self.address = self.config.address(host.name, role)
        self.epoch: Callable[[], int] = lambda: 0
        """Of its own lead, for a master (`Office` says); whoever connects is told."""

    def fail(self, error: BaseException, where: str = "") -> NoReturn:
        """End the process now: a bug, or a disk that cannot be trusted any more."""
        text = "".join(traceback.format_exception(error))
        log.critical("stopping: %s: %s\n%s", where or type(error).__name__, error, text)
        try:
            _say_running(self, EXIT_BUG)
        finally:  # the disk may be what has failed
            self._end(EXIT_BUG, f"{self.role} stops: {where}: {text}")

    def refuse(self, error: ClusterError) -> NoReturn:
        """End the process now: it may not serve, for a reason that a person has to see to."""
        log.critical("refused: %s", error)
        self._end(EXIT_REFUSED, f"{self.role}: {error}")

    def _end(self, status: int, words: str) -> NoReturn:
        """Whatever becomes of the words: stderr is a file, and the disk may be full."""
        try:
            print(words, file=sys.stderr, flush=True)
            if self._daemon_log is not None:
                self._daemon_log.close()
        finally:
            os._exit(status)

    def restart(self, reason: str) -> NoReturn:
        """Begin a new life in this process, with nothing of this one but what is on disk: every
        connection and thread ends. For a leader that was deposed (cluster/leader)."""
        log.warning("starts anew: %s", reason)
        try:
            if self._daemon_log is not None:
                self._daemon_log.close()
        finally:
            try:
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
            except OSError as error:  # this life is over in any case
                self._end(EXIT_BUG, f"{self.role} cannot start anew: {error}")

    _daemon_log: DaemonLog | None = None


def run(role: str, build: Callable[[Daemon], Service], argv: Sequence[str] | None = None) -> int:
    """Be a daemon of this role until told to stop; return the exit status."""
    options = _parse(role, argv)
    os.umask(0o077)
    directory = os.path.abspath(os.path.expanduser(options.dir))
    try:
        config = load(options.config or os.path.join(directory, "cluster.yaml"))
        secret = read_identity(os.path.join(directory, "identity.json"))
        host = config.host(options.host)
        if options.cell:
            role = f"{role}{CELL_MARK}{options.cell}"
            config.cell(role)
        lock = _lock(directory, role)
    except (ClusterError, OSError) as error:
        print(f"{role}: {error}", file=sys.stderr, flush=True)
        return EXIT_REFUSED
    if lock is None:
        print(f"{role} on {options.host} is already running here", file=sys.stderr, flush=True)
        return EXIT_RUNNING
    daemon_log = DaemonLog(os.path.join(directory, "logs", f"{role}.log"))
    try:
        os.makedirs(os.path.join(directory, role), mode=0o700, exist_ok=True)
        daemon = Daemon(role, Cluster(config, secret), host, directory)
        daemon._daemon_log = daemon_log
        return _live(daemon, build)
    finally:
        daemon_log.close()
        os.close(lock)


def _parse(role: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {module_of(role)}")
    parser.add_argument("--host", required=True, help="the name of this host in cluster.yaml")
    parser.add_argument("--dir", required=True, help="the cluster's directory on this host")
    parser.add_argument("--config", help="the cluster file, if not DIR/cluster.yaml")
    parser.set_defaults(cell="")
    if role == DFS_MASTER:
        parser.add_argument(
            "--cell", help="the cell of the dfs whose master it is; else the root's"
        )
    return parser.parse_args(argv)


def _lock(directory: str, role: str) -> int | None:
    """Return a descriptor that holds this place for as long as it is open; None: taken."""
    os.makedirs(os.path.join(directory, "run"), mode=0o700, exist_ok=True)
    return hold(os.path.join(directory, "run", f"{role}.lock"))


def pid_file(directory: str, role: str) -> str:
    """Return the path of the file that says which process has a role."""
    return os.path.join(directory, "run", f"{role}.json")


def _live(daemon: Daemon, build: Callable[[Daemon], Service]) -> int:
    loop = daemon.loop
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, context: _loop_failed(daemon, context))
    threading.excepthook = lambda args: daemon.fail(
        args.exc_value or RuntimeError("a thread failed"), f"thread {args.thread}"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stopping.set)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return loop.run_until_complete(_serve(daemon, build))
    except (ClusterError, OSError) as error:
        log.error("cannot run: %s", error)
        print(f"{daemon.role}: {error}", file=sys.stderr, flush=True)
        return EXIT_REFUSED
    except Exception as bug:
        daemon.fail(bug, "bug")
    finally:
        path = pid_file(daemon.directory, daemon.role)
        if os.path.exists(path):
            os.unlink(path)


def _loop_failed(daemon: Daemon, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, ClusterError | OSError):
        # Nobody waited for this outcome any more; it is news, not a bug.
        log.warning("unheard error: %s: %s", type(error).__name__, error)
        return
    daemon.fail(error or RuntimeError(context["message"]), context["message"])


async def _serve(daemon: Daemon, build: Callable[[Daemon], Service]) -> int:
    service = build(daemon)
    rpc_log = RpcLog(os.path.join(daemon.directory, "logs", f"{daemon.role}.rpc.log"))
    gate = _Gate(daemon, service)
    server = Server(
        gate.handlers(),
        daemon.identity,
        observe=rpc_log.observe,
        on_bug=daemon.fail,
        on_connect=service.connected,
        on_disconnect=service.disconnected,
        epoch=lambda: daemon.epoch(),
    )
    await server.start(daemon.address)
    _say_running(daemon)
    log.info("role=%s host=%s address=%s pid=%d", *gate.words(), os.getpid())
    try:
        await service.start()
        gate.started = True
        log.info("role=%s host=%s address=%s serving", *gate.words())
        await daemon.stopping.wait()
        log.info("role=%s host=%s address=%s stopping", *gate.words())
    finally:
        gate.started = False
        await asyncio.wait_for(service.stop(), STOP_GRACE_S)
        await server.close()
        rpc_log.close()
    return 0


class _Gate:
    """Lets requests through once the service has started; answers health always."""

    def __init__(self, daemon: Daemon, service: Service) -> None:
        self._daemon = daemon
        self._service = service
        self.started = False

    def words(self) -> tuple[str, str, str]:
        return self._daemon.role, self._daemon.host.name, self._daemon.address

    def handlers(self) -> dict[type[Any], Handler]:
        handlers: dict[type[Any], Handler] = {
            kind: self._gated(handler) for kind, handler in self._service.handlers.items()
        }
        handlers[Health] = self._health
        handlers[Metrics] = lambda request, peer: self._service.metrics()
        handlers[Stop] = self._stop
        return handlers

    def _gated(self, handler: Handler) -> Handler:
        def answer(request: Any, peer: Peer) -> Any:
            if not self.started:
                # As if nobody was there: what became of an earlier try it does not know, so that
                # who repeats one keeps its number, or asks another member (F5).
                raise HostUnreachable(f"{self._daemon.role} is starting or stopping; try again")
            return handler(request, peer)

        return answer

    def _health(self, request: Health, peer: Peer) -> HealthReply:
        daemon = self._daemon
        ready, detail = self._service.ready() if self.started else (False, "starting")
        return HealthReply(
            daemon.role,
            daemon.host.name,
            os.getpid(),
            daemon.since_s,
            version(),
            ready,
            detail,
            _guard_of(daemon),
        )

    def _stop(self, request: Stop, peer: Peer) -> None:
        log.info("told to stop by %s@%s", peer.role, peer.address)
        self._daemon.loop.call_later(0.01, self._daemon.stopping.set)


def _guard_of(daemon: Daemon) -> GuardReply | None:
    """What the host's guard says: it has no port of its own."""
    said = guard_state(daemon.directory)
    if said is None:
        return None
    return GuardReply(
        said["pid"],
        {str(role): int(count) for role, count in said.get("restarts", {}).items()},
        {str(role): str(why) for role, why in said.get("left_down", {}).items()},
    )


def _say_running(daemon: Daemon, ended: int | None = None) -> None:
    """Write down who we are; `ended` is for the guard, which may not be our parent."""
    path = pid_file(daemon.directory, daemon.role)
    fields: dict[str, Any] = {
        "role": daemon.role,
        "host": daemon.host.name,
        "pid": os.getpid(),
        "since": daemon.since_s,
        "address": daemon.address,
        "version": version(),
        "build": os.environ.get("MRSTREAM_BUILD", ""),
        "extras": list(daemon.config.extras_of(daemon.host.name)),
        "masters": list(daemon.config.masters_known_to(daemon.role)),
    }
    mounts = daemon.config.mounts_known_to(daemon.role)
    if mounts:
        fields["mounts"] = mounts
    if ended is not None:
        fields["ended"] = ended
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(fields, file)
    os.replace(temporary, path)
