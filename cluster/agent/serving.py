"""The agent's conversation with its launcher: requests in, answers out, and what its end means."""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from mrstream.cluster.agent import checks, files, software
from mrstream.cluster.agent.daemons import Daemons
from mrstream.cluster.agent.guard import GuardKeeper, guard_state
from mrstream.cluster.agent.refusal import RefusedError, told

ABANDON_GRACE_S = 5.0

Operation = Callable[..., dict[str, Any]]


class Agent:
    """One launcher's session on one host."""

    def __init__(self, out: BinaryIO, requests: BinaryIO) -> None:
        self._out = out
        self._requests = requests
        self._daemons = Daemons("", "")
        self._probe = checks.Probe()
        self._kept = True
        self._place = ("", "")
        self._locks: list[int] = []

    def operation(self, name: str) -> Operation:
        """Return what a request's `do` stands for."""
        operations: dict[str, Operation] = {
            "hello": self._hello,
            "keep": self._keep,
            "unguard": self._unguard,
            "check": checks.check,
            "listen": self._probe.listen,
            "unlisten": self._probe.unlisten,
            "reach": checks.reach,
            "have": files.have,
            "put": files.put,
            "keep_ballast": files.keep_ballast,
            "give_up_ballast": files.give_up_ballast,
            "read": files.read,
            "names": files.names,
            "files": files.files,
            "fetch": files.fetch,
            "set_aside": files.set_aside,
            "discard": files.discard,
            "install": functools.partial(software.install, launcher_is_gone=self._hung_up),
            "modules": software.modules,
            "start": self._daemons.start,
            "alive": self._daemons.alive,
            "stop": self._daemons.stop,
            "processes": self._daemons.processes,
            "purge": self._daemons.purge,
            "logs": functools.partial(self._daemons.logs, requests=self._requests, say=self.say),
        }
        return operations[name]

    def say(self, message: dict[str, Any]) -> None:
        """Send an answer or an event."""
        self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def abandon(self) -> None:
        """The launcher is gone: stop what it had begun, unless it said `keep`."""
        self._probe.unlisten()
        if not self._kept:
            self._daemons.stop_started(ABANDON_GRACE_S)

    def _hello(self, directory: str, host: str, lock: bool) -> dict[str, Any]:
        """Begin: the cluster's directory here, and who and what this host is."""
        directory = files.full_path(directory)
        self._daemons = Daemons(directory, host)
        self._place = directory, host
        if lock:
            self._take_lock(directory)
            self._locks.append(GuardKeeper(directory, host).hold_still())
            self._kept = False
        checks.lift_file_limit()
        running = self._daemons.running()
        guard = guard_state(directory)
        running.pop(guard["role"] if guard else "", None)
        return {"directory": directory, **checks.facts(), "running": running, "guard": guard}

    def _take_lock(self, directory: str) -> None:
        run = os.path.join(directory, "run")
        checks.free_bytes(run)
        lock = files.hold(os.path.join(run, "launcher.lock"))
        if lock is None:
            raise RefusedError(
                "another `mrstream cluster` command is at work on this host; wait for it to end"
            )
        self._locks.append(lock)

    def _keep(
        self, guard: dict[str, Any] | None = None, at_boot: bool | None = None
    ) -> dict[str, Any]:
        """What was started stays, even when the launcher is gone; `guard` says what a guard starts
        again when it ends. None: nobody does."""
        keeper = GuardKeeper(*self._place)
        self._kept = True
        if guard is None:
            keeper.take_away()
            return {"said": ""}
        return {"said": keeper.set_up(**guard, at_boot=at_boot)}

    def _unguard(self) -> dict[str, Any]:
        return GuardKeeper(*self._place).take_away()

    def _hung_up(self) -> bool:
        poller = select.poll()
        poller.register(self._requests, select.POLLHUP | select.POLLRDHUP)
        return bool(poller.poll(0))


class _Reader:
    """Lines and raw bytes from one descriptor, without reading ahead past what select can see."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._held = b""

    def line(self) -> bytes:
        """Return the next line without its end; nothing: there is none."""
        while b"\n" not in self._held:
            more = self._source.read(65536)
            if not more:
                return b""
            self._held += more
        line, _, self._held = self._held.partition(b"\n")
        return line

    def exactly(self, count: int) -> bytes:
        """Return so many bytes; `EOFError`: there are not so many."""
        parts, have = [self._held], len(self._held)
        while have < count:
            more = self._source.read(1 << 20)
            if not more:
                raise EOFError
            parts.append(more)
            have += len(more)
        whole = b"".join(parts)
        self._held = whole[count:]
        return whole[:count]


def main() -> None:
    """Serve the launcher until it goes."""
    requests, out = os.fdopen(0, "rb", buffering=0, closefd=False), sys.stdout.buffer
    reader = _Reader(requests)
    agent = Agent(out, requests)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the terminal's Ctrl-C is the launcher's to judge
    try:
        while line := reader.line():
            agent.say(_answer(agent, reader, json.loads(line)))
    except (BrokenPipeError, EOFError):
        pass  # the launcher is gone; see `abandon`
    finally:
        agent.abandon()


def _answer(agent: Agent, reader: _Reader, request: dict[str, Any]) -> dict[str, Any]:
    operation = agent.operation(request.pop("do"))
    if "bytes" in request:
        request["payload"] = reader.exactly(request.pop("bytes"))
    try:
        return {"ok": operation(**request)}
    except BrokenPipeError:
        raise
    except RefusedError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": told(error)}
