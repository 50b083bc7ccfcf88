"""The daemons of a place: started detached, watched, ended, and their logs."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable
from typing import Any, BinaryIO

from mrstream.cluster.agent.files import full_path, remove, tail
from mrstream.cluster.agent.processes import Processes, words_of
from mrstream.cluster.agent.refusal import RefusedError
from mrstream.cluster.agent.software import clean_environment

LAST_WORDS_BYTES = 1500
LINE_BYTES = 400
"""What a line of a log takes, at a generous guess."""
FOLLOW_EVERY_S = 0.2
OUT_BYTES_MAX = 4 * 1024 * 1024
"""What a daemon says outside its log; beyond this a new file is begun at its next start."""


class Daemons:
    """The daemons of one host in one cluster's directory."""

    def __init__(self, directory: str, host: str, processes: Processes | None = None) -> None:
        self._directory = directory
        self._host = host
        self._processes = processes or Processes(directory)
        self._started: list[str] = []
        self._said_before: dict[str, int] = {}

    def running(self) -> dict[str, Any]:
        """Return what each role here says of itself, for those whose process is alive."""
        found: dict[str, Any] = {}
        run = os.path.join(self._directory, "run")
        for name in sorted(os.listdir(run)) if os.path.isdir(run) else []:
            if not name.endswith(".json"):
                continue
            try:
                with open(os.path.join(run, name), encoding="utf-8") as file:
                    said = json.load(file)
            except (OSError, ValueError):
                continue  # it ended, or began, at this very moment
            if self._processes.is_role(said.get("pid", 0), said.get("role", "")):
                found[said["role"]] = said
        return found

    def start(self, role: str, python: str, environment: dict[str, str]) -> dict[str, Any]:
        """Start a daemon, detached, unless it runs already."""
        running = self._processes.of_role(role)
        if running:
            return {"pid": running[0], "already": True}
        return self.spawn(role, python, {**clean_environment(), **environment})

    def spawn(self, role: str, python: str, environment: dict[str, str]) -> dict[str, Any]:
        """Start a daemon, detached, with this environment and our marks in it, and nothing else."""
        os.makedirs(os.path.join(self._directory, "logs"), mode=0o700, exist_ok=True)
        argv = [full_path(python), *words_of(role)]
        path = self._log(f"{role}.out")
        if os.path.exists(path) and os.path.getsize(path) > OUT_BYTES_MAX:
            os.replace(path, f"{path}.1")
        with open(path, "ab") as out:
            self._said_before[role] = out.tell()
            process = subprocess.Popen(
                [*argv, "--host", self._host, "--dir", self._directory],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self._directory,
                env={**environment, **self._processes.marks(role)},
                start_new_session=True,
            )
        self._processes.adopt(process, role)
        self._started.append(role)
        return {"pid": process.pid, "already": False}

    def alive(self, role: str) -> dict[str, Any]:
        """Whether the role's process lives, and what it last wrote if it does not; of one that
        was started here, only what it wrote since."""
        if self._processes.of_role(role):
            return {"alive": True, "said": ""}
        path, before = self._log(f"{role}.out"), self._said_before.get(role, 0)
        said_bytes = os.path.getsize(path) - before if os.path.exists(path) else 0
        return {"alive": False, "said": tail(path, min(LAST_WORDS_BYTES, said_bytes))}

    def stop(self, roles: list[str], grace_s: float) -> dict[str, Any]:
        """End these roles, in order; return who needed force and who still lives."""
        forced: list[int] = []
        for role in roles:
            forced += self._processes.end(role, grace_s)
            stale = os.path.join(self._directory, "run", f"{role}.json")
            if os.path.exists(stale) and not self._processes.of_role(role):
                os.unlink(stale)
        return {"forced": forced, **self.processes()}

    def stop_started(self, grace_s: float) -> None:
        """End what this session has started, the last first."""
        self.stop(list(reversed(self._started)), grace_s)

    def processes(self) -> dict[str, Any]:
        """Return every process that belongs to this place, in whatever way."""
        return {"left": self._processes.alive()}

    def purge(self, paths: list[str]) -> dict[str, Any]:
        """Remove the cluster's directories here; refused while any of its processes lives."""
        for pid, command in self._processes.alive():
            raise RefusedError(f"process {pid} still runs ({command}): `cluster down` first")
        remove(paths)
        return {}

    def logs(
        self,
        roles: list[str],
        lines: int,
        follow: bool,
        requests: BinaryIO,
        say: Callable[[dict[str, Any]], None],
    ) -> dict[str, Any]:
        """Say the last lines of the logs of these roles, and what is added, until input comes."""
        at: dict[str, int] = {}
        for name in [name for role in roles for name in (f"{role}.log", f"{role}.out")]:
            path = self._log(name)
            text = tail(path, lines * LINE_BYTES)
            at[name] = os.path.getsize(path) if os.path.exists(path) else 0
            for line in text.splitlines()[-lines:]:
                say({"event": [name, line]})
        while follow and not select.select([requests], [], [], FOLLOW_EVERY_S)[0]:
            for name in at:
                new, at[name] = _added(self._log(name), at[name])
                for line in new:
                    say({"event": [name, line]})
        return {}

    def _log(self, name: str) -> str:
        return os.path.join(self._directory, "logs", name)


def _added(path: str, at: int) -> tuple[list[str], int]:
    """Return the whole lines that came after that place in a file, and the place after them."""
    try:
        if os.path.getsize(path) < at:
            at = 0  # it has been turned over
        with open(path, "rb") as file:
            file.seek(at)
            new = file.read(1 << 20)
    except FileNotFoundError:
        return [], at
    whole = new[: new.rfind(b"\n") + 1]
    return whole.decode(errors="replace").splitlines(), at + len(whole)
