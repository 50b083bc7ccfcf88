"""The guard of a host: a process of its own that starts again whatever has ended there.

`mrstream cluster up` leaves a plan (DIR/guard.json: which roles, run how) and starts the guard; at
a boot, cron does. The plan is the only truth: without one the guard ends and nothing is started.
`down` withdraws it first. While a launcher is at work on the host, the guard keeps still: both hold
`run/starting.lock` when they start or end something, so neither undoes what the other does. It
looks at processes, not at files that say who runs; killing it harms nobody, and a daemon that it
had started lives on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from mrstream.cluster.agent import boot
from mrstream.cluster.agent.checks import lift_file_limit
from mrstream.cluster.agent.daemons import Daemons
from mrstream.cluster.agent.files import hold, put
from mrstream.cluster.agent.processes import Processes, module_of
from mrstream.cluster.agent.refusal import RefusedError
from mrstream.cluster.agent.software import clean_environment
from mrstream.cluster.agent.watch import Watch

ROLE = "cluster.agent.guard"
BACKUP = "cluster.hosts.backup_here"
"""What the guard runs now and then where the plan has a backup in it."""
PLAN = "guard.json"
LOOK_S = 0.5
END_GRACE_S = 5.0
LOCK_S_MAX = 3.0
BACKUP_RETRY_S = 600.0
BOOT_S_MAX = 600.0
"""After a boot the disk with the plan may be mounted late."""


def plan_path(directory: str) -> str:
    return os.path.join(directory, PLAN)


def read_plan(directory: str) -> dict[str, Any] | None:
    """Return what is to run there and how; None: nothing is."""
    try:
        with open(plan_path(directory), encoding="utf-8") as file:
            plan: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return plan


def state_path(directory: str) -> str:
    """Return where a guard says how it is."""
    return os.path.join(directory, "run", f"{ROLE}.json")


def guard_state(directory: str) -> dict[str, Any] | None:
    """Return what the guard of a place says of itself; None: there is none, or it has ended."""
    try:
        with open(state_path(directory), encoding="utf-8") as file:
            said: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return said if Processes(directory).is_role(said.get("pid", 0), ROLE) else None


@contextlib.contextmanager
def starting_lock(directory: str) -> Iterator[bool]:
    """Hold the lock for starting and ending daemons; False: somebody else has it."""
    descriptor = open_starting_lock(directory)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def open_starting_lock(directory: str) -> int | None:
    """Return a descriptor that holds that lock while it is open; None: somebody else has it."""
    return hold(os.path.join(directory, "run", "starting.lock"))


# --- what the agent does about it, for a launcher


class GuardKeeper:
    """Puts a guard there and takes it away; only while the launcher's lock is held."""

    def __init__(self, directory: str, host: str) -> None:
        self._directory, self._host = directory, host

    def hold_still(self) -> int:
        """Return a descriptor that keeps the guard from starting anything while it is open. A guard
        that hangs over it is ended; `set_up` starts another."""
        deadline_s = time.monotonic() + LOCK_S_MAX
        while True:
            held = open_starting_lock(self._directory)
            if held is not None:
                return held
            if time.monotonic() > deadline_s:
                Processes(self._directory).end(ROLE, 0.0)
                deadline_s += LOCK_S_MAX
            time.sleep(0.01)

    def set_up(
        self,
        roles: list[str],
        python: str,
        environment: dict[str, str],
        backup: dict[str, Any] | None,
        at_boot: bool | None,
    ) -> str:
        """Have these roles guarded from now on, and all be started at boot if asked to (None: as it
        was); return what a person should know of that."""
        plan = {
            "host": self._host,
            "python": python,
            "environment": {**clean_environment(), **environment},
            "roles": roles,
            "backup": backup,
            "at_s": time.time(),
        }
        before = read_plan(self._directory) or {}
        text = json.dumps(plan, indent=1, sort_keys=True)
        put(plan_path(self._directory), 0o600, text.encode())
        daemons = Daemons(self._directory, self._host)
        if before.get("python") != python:
            daemons.stop([ROLE], END_GRACE_S)
        daemons.start(ROLE, python, environment)
        wanted = boot.is_at_boot(self._directory) if at_boot is None else at_boot
        if not wanted:
            boot.not_at_boot(self._directory)
            return ""
        argv = [python, "-P", "-m", module_of(ROLE), "--host", self._host, "--dir", self._directory]
        argv.append("--boot")
        try:
            path = {"PYTHONPATH": environment["PYTHONPATH"]} if "PYTHONPATH" in environment else {}
            return boot.at_boot(self._directory, argv, path)
        except RefusedError as error:
            return str(error)

    def take_away(self) -> dict[str, Any]:
        """Nothing is guarded here any more, and nothing starts at boot."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(plan_path(self._directory))
        was_at_boot = boot.not_at_boot(self._directory)
        Daemons(self._directory, self._host).stop([ROLE, BACKUP], END_GRACE_S)
        return {"was_at_boot": was_at_boot}


# --- the process


class Guard:
    """One life of a guard."""

    def __init__(self, directory: str, host: str) -> None:
        self._directory, self._host = directory, host
        self._processes = Processes(directory)
        self._daemons = Daemons(directory, host, self._processes)
        self._watches: dict[str, Watch] = {}
        self._plan: dict[str, Any] = {}
        self._since_s = time.time()
        self._said = ""
        self._backup = _Backup()

    def look(self, now_s: float) -> bool:
        """Start what has ended and is due; False: the plan was withdrawn."""
        with starting_lock(self._directory) as is_ours:
            if not is_ours:
                # A launcher is at work: what ends now ends by its will.
                self._processes.reap()
                return True
            try:
                plan = read_plan(self._directory)
            except (OSError, ValueError) as error:
                say(f"{plan_path(self._directory)} cannot be read: {error}")
                return True
            if plan is None:
                return False
            if plan != self._plan:
                self._plan = plan
                self._watches = {role: Watch() for role in plan["roles"]}
            for role, watch in self._watches.items():
                self._look_at(role, watch, now_s)
            self._processes.status_of(BACKUP)  # it has written down what came of it
            if not self._processes.has_child(BACKUP):
                self._backup.look(plan.get("backup"), now_s, self._start)
        self._tell()
        return True

    def _look_at(self, role: str, watch: Watch, now_s: float) -> None:
        pid_said = int(self._run_file(role).get("pid", 0))
        if self._processes.has_child(role) or self._processes.is_role(pid_said, role):
            watch.runs(now_s)
            return
        if watch.due_s is not None and not watch.is_due(now_s):
            return
        if self._processes.of_role(
            role
        ):  # it has only begun, or nobody let it write down who it is
            watch.runs(now_s)
            return
        if watch.due_s is None:
            say(f"{role} {watch.ended(self._status_of(role), now_s)}")
        if not watch.is_due(now_s):
            return
        try:
            pid = self._start(role)
        except OSError as error:
            say(f"{role} cannot be started: {error}")
            watch.due_s = None  # counts as an end, at the next look
            return
        watch.started(now_s)
        say(f"{role} was started (pid {pid})")

    def _start(self, role: str) -> int:
        plan = self._plan
        pid: int = self._daemons.spawn(role, plan["python"], plan["environment"])["pid"]
        return pid

    def _run_file(self, role: str) -> dict[str, Any]:
        try:
            with open(os.path.join(self._directory, "run", f"{role}.json"), "rb") as file:
                said: dict[str, Any] = json.load(file)
                return said
        except (OSError, ValueError):
            return {}

    def _status_of(self, role: str) -> int | None:
        """How it ended: our own child tells; another's, if it had time to write it down."""
        status = self._processes.status_of(role)
        said = self._run_file(role).get("ended")
        return status if status is not None or said is None else int(said)

    def _tell(self) -> None:
        """Write down how things are, where it has changed."""
        fields: dict[str, Any] = {
            "role": ROLE,
            "host": self._host,
            "pid": os.getpid(),
            "since": self._since_s,
            "build": os.environ.get("MRSTREAM_BUILD", ""),
            "restarts": {role: w.restarts for role, w in self._watches.items() if w.restarts},
            "left_down": {role: w.left_down for role, w in self._watches.items() if w.left_down},
            "backup": self._backup.said,
        }
        text = json.dumps(fields)
        if text == self._said and os.path.exists(state_path(self._directory)):
            return
        try:
            put(state_path(self._directory), 0o600, text.encode())
            self._said = text
        except OSError as error:
            say(f"{state_path(self._directory)} cannot be written: {error}")


class _Backup:
    """The backup that the plan asks for: begun in time, and what came of the last one."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self._due_s = 0.0

    def look(
        self, wanted: dict[str, Any] | None, now_s: float, start: Callable[[str], object]
    ) -> None:
        """Begin one if it is due."""
        if wanted is None:
            self.said = {}
            return
        self.said = self._last(wanted)
        if now_s < self._due_s:
            return
        age_s = time.time() - float(self.said.get("at_s", 0.0))
        every_s = float(wanted["every_s"])
        if age_s < every_s:
            self._due_s = now_s + min(every_s - age_s, BACKUP_RETRY_S)
            return
        self._due_s = now_s + min(every_s, BACKUP_RETRY_S)
        try:
            start(BACKUP)
        except OSError as error:
            say(f"the backup cannot be begun: {error}")

    def _last(self, wanted: dict[str, Any]) -> dict[str, Any]:
        try:
            with open(wanted["note"], encoding="utf-8") as file:
                note: dict[str, Any] = json.load(file)
                return note
        except (OSError, ValueError):
            return {}


def say(text: str) -> None:
    """Write a line into the guard's log."""
    print(time.strftime("%Y-%m-%dT%H:%M:%S"), text, flush=True)


def main() -> int:
    """Guard a place until the plan is withdrawn, or the guard told to end."""
    parser = argparse.ArgumentParser(prog=f"python -m {module_of(ROLE)}")
    parser.add_argument("--host", required=True, help="the name of this host in cluster.yaml")
    parser.add_argument("--dir", required=True, help="the cluster's directory on this host")
    parser.add_argument("--boot", action="store_true", help="wait for the disk to be there")
    options = parser.parse_args()
    os.umask(0o077)
    os.chdir("/")
    deadline_s = time.monotonic() + (BOOT_S_MAX if options.boot else 0.0)
    while not os.path.exists(plan_path(options.dir)):
        if time.monotonic() >= deadline_s:
            print(f"there is no {plan_path(options.dir)}: nothing to guard", file=sys.stderr)
            return 1
        time.sleep(LOOK_S)
    place = hold(os.path.join(options.dir, "run", f"{ROLE}.lock"))
    if place is None:
        print("there is a guard here already", file=sys.stderr, flush=True)
        return 3
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    lift_file_limit()
    guard = Guard(options.dir, options.host)
    say(f"guards {options.dir} (pid {os.getpid()})")
    try:
        while guard.look(time.monotonic()):
            time.sleep(LOOK_S)
        say("the plan was withdrawn")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(state_path(options.dir))
    return 0


if __name__ == "__main__":
    sys.exit(main())
