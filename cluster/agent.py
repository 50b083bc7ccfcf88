"""The hand of the launcher on a host: checks, installs, starts and stops there, as it is asked.

This file is sent to the host's own Python over SSH (or run by ours, for local hosts) before
anything is installed there, so it uses the standard library only, imports nothing of ours, and is
one file however long. It talks JSON lines over its standard input and output: a request
`{"do": …}`, perhaps followed by raw bytes, gets events and then one `{"ok": …}` or `{"error": …}`.
If the launcher vanishes before it said `keep`, the agent stops whatever it had started: nothing
half-begun is left behind. It decides nothing.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import getpass
import json
import os
import platform
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

POLL_S = 0.02
PLACE_MARK = "MRSTREAM_PLACE"
ROLE_MARK = "MRSTREAM_ROLE"
TAIL_BYTES = 8192


class RefusedError(Exception):
    """An answer for people: what is wrong on this host, and what to do."""


class Agent:
    """One launcher's session on one host."""

    def __init__(self, out: BinaryIO, requests: BinaryIO) -> None:
        self._out = out
        self._requests = requests
        self._writing = threading.Lock()
        self.directory = ""
        self.host = ""
        self._kept = True
        self._started: list[str] = []
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock: int | None = None
        self._probe: socket.socket | None = None

    def say(self, message: dict[str, Any]) -> None:
        with self._writing:
            self._out.write(json.dumps(message).encode() + b"\n")
            self._out.flush()

    # --- getting to know the host

    def hello(self, directory: str, host: str, lock: bool) -> dict[str, Any]:
        """Begin: the cluster's directory here, and who and what this host is."""
        self.directory = os.path.abspath(os.path.expanduser(directory))
        self.host = host
        if lock:
            self._take_lock()
            self._kept = False
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return {
            "directory": self.directory,
            "python": sys.executable,
            "version": platform.python_version(),
            "user": getpass.getuser(),
            "home": os.path.expanduser("~"),
            "hostname": socket.gethostname(),
            "cores": os.cpu_count() or 1,
            "machine": platform.machine(),
            "wall_s": time.time(),
            "running": self.running(),
        }

    def _take_lock(self) -> None:
        run = os.path.join(self.directory, "run")
        os.makedirs(run, mode=0o700, exist_ok=True)
        self._lock = os.open(os.path.join(run, "launcher.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                "another `mrstream cluster` command is at work on this host; wait for it to end"
            ) from None

    def check(self, address: str, ports: list[int], disks: list[str]) -> dict[str, Any]:
        """Say how much room each disk has, and which ports cannot be used and why."""
        busy: dict[str, str] = {}
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for port in ports:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    sock.bind((address, port))
                    sock.listen(1)
                except OSError as error:
                    busy[str(port)] = error.strerror or str(error)
        free: dict[str, int] = {}
        for disk in disks:
            path = os.path.abspath(os.path.expanduser(disk))
            os.makedirs(path, mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(b"x" * 4096)
                file.flush()
            usage = os.statvfs(path)
            free[path] = usage.f_bavail * usage.f_frsize
        return {"busy": busy, "free": free}

    def listen(self, address: str, port: int) -> dict[str, Any]:
        """Accept connections there for a while, so that other hosts can try to reach us."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._probe = socket.create_server((address, port), family=family, backlog=1024)
        return {}

    def unlisten(self) -> dict[str, Any]:
        """End `listen`."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None
        return {}

    def reach(self, targets: dict[str, list[Any]], limit_s: float) -> dict[str, Any]:
        """Try to connect to other hosts; say which did not answer, and why."""
        failed: dict[str, str] = {}

        def attempt(name: str, address: str, port: int) -> None:
            try:
                socket.create_connection((address, port), limit_s).close()
            except OSError as error:
                failed[name] = error.strerror or str(error)

        threads = [
            threading.Thread(target=attempt, args=(name, *target))
            for name, target in targets.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"failed": failed}

    # --- putting things there

    def have(self, paths: list[str]) -> dict[str, Any]:
        """Say which of these files exist."""
        return {"paths": [path for path in paths if os.path.exists(self._path(path))]}

    def put(self, path: str, mode: int, payload: bytes) -> dict[str, Any]:
        """Write a file, whole or not at all."""
        path = self._path(path)
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".part-", dir=folder)
        try:
            os.fchmod(descriptor, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        return {}

    def read(self, path: str) -> dict[str, Any]:
        """Return the text of a file, None if there is no such file."""
        try:
            with open(self._path(path), encoding="utf-8") as file:
                return {"text": file.read()}
        except FileNotFoundError:
            return {"text": None}

    def files(self, path: str) -> dict[str, Any]:
        """Return the files below a directory, by their path from it, with their sizes."""
        root = self._path(path)
        found: dict[str, int] = {}
        for folder, _, names in os.walk(root):
            for name in names:
                full = os.path.join(folder, name)
                found[os.path.relpath(full, root)] = os.path.getsize(full)
        return {"files": found}

    def fetch(self, path: str, offset: int, count: int) -> dict[str, Any]:
        """Return some bytes of a file, in base64."""
        with open(self._path(path), "rb") as file:
            file.seek(offset)
            return {"base64": base64.b64encode(file.read(count)).decode()}

    def set_aside(self, path: str) -> dict[str, Any]:
        """Give a directory another name, so that its own is free; nothing is removed."""
        path = self._path(path)
        if not os.path.exists(path):
            return {"moved": None}
        moved = f"{path}.{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        os.rename(path, moved)
        return {"moved": moved}

    def names(self, path: str) -> dict[str, Any]:
        """Return the names in a directory; none if there is no such directory."""
        try:
            return {"names": sorted(os.listdir(self._path(path)))}
        except FileNotFoundError:
            return {"names": []}

    def install(
        self, venv: str, wheels: list[str], requirement: str, no_index: bool
    ) -> dict[str, Any]:
        """Make a virtual environment with these wheels in it, whole or not at all."""
        venv = self._path(venv)
        done = os.path.join(venv, "installed")
        python = os.path.join(venv, "bin", "python")
        os.makedirs(os.path.dirname(venv), mode=0o700, exist_ok=True)
        with open(venv + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(done):
                shutil.rmtree(venv, ignore_errors=True)
                self._command([sys.executable, "-m", "venv", venv], "make a virtual environment")
                pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                if no_index:
                    pip += ["--no-index", "--find-links", self._path(os.path.dirname(wheels[0]))]
                self._command([*pip, self._path(requirement)], "install mrstream")
                with open(done, "w") as file:
                    file.write("\n")
        return {"python": python}

    def _command(self, argv: list[str], purpose: str) -> None:
        """Run a command to its end, but not beyond the end of our launcher."""
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
            while process.poll() is None:
                if self._hung_up():
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    raise EOFError
                time.sleep(POLL_S)
            said.seek(0)
            words = said.read().decode(errors="replace").strip()[-1500:]
        if process.returncode != 0:
            raise RefusedError(f"cannot {purpose} ({' '.join(argv[:4])} …): {words}")

    def _hung_up(self) -> bool:
        poller = select.poll()
        poller.register(self._requests, select.POLLHUP | select.POLLRDHUP)
        return bool(poller.poll(0))

    def modules(self, python: str, names: list[str]) -> dict[str, Any]:
        """Say which of these modules that Python can import, and its mrstream's version."""
        code = (
            "import sys, json, importlib.util as u, importlib.metadata as m\n"
            "def there(n):\n"
            "    try: return u.find_spec(n) is not None\n"
            "    except ModuleNotFoundError: return False\n"
            "print(json.dumps([[n for n in sys.argv[1:] if there(n)], m.version('mrstream')]))"
        )
        python = self._path(python)
        argv = [python, "-P", "-c", code, *names]
        try:
            ended = subprocess.run(argv, capture_output=True, text=True, env=_clean_environment())
        except OSError as error:
            raise RefusedError(f"{python} cannot be run: {error.strerror}") from None
        if ended.returncode != 0:
            last = ended.stderr.strip().splitlines()[-1:] or ["?"]
            raise RefusedError(f"{python} has no mrstream: {last[0]}")
        found, version = json.loads(ended.stdout)
        return {"found": found, "version": version}

    # --- daemons

    def running(self) -> dict[str, Any]:
        """Return what each role here says of itself, for those whose process is alive."""
        found: dict[str, Any] = {}
        run = os.path.join(self.directory, "run")
        for name in sorted(os.listdir(run)) if os.path.isdir(run) else []:
            if not name.endswith(".json"):
                continue
            try:
                with open(os.path.join(run, name), encoding="utf-8") as file:
                    said = json.load(file)
            except (OSError, ValueError):
                continue  # it ended, or began, at this very moment
            if self._is_ours(said.get("pid", 0), said.get("role", "")):
                found[said["role"]] = said
        return found

    def start(self, role: str, python: str, environment: dict[str, str]) -> dict[str, Any]:
        """Start a daemon, detached, unless it runs already."""
        running = self._pids_of(role)
        if running:
            return {"pid": running[0], "already": True}
        logs = os.path.join(self.directory, "logs")
        os.makedirs(logs, mode=0o700, exist_ok=True)
        argv = [self._path(python), "-P", "-m", role, "--host", self.host, "--dir", self.directory]
        marks = {PLACE_MARK: self.directory, ROLE_MARK: role}
        with open(os.path.join(logs, f"{role}.out"), "ab") as out:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory,
                env={**_clean_environment(), **environment, **marks},
                start_new_session=True,
            )
        self._children[process.pid] = process
        self._started.append(role)
        return {"pid": process.pid, "already": False}

    def alive(self, role: str) -> dict[str, Any]:
        """Say whether the role's process lives, and what it last wrote if it does not."""
        pids = self._pids_of(role)
        if pids:
            return {"alive": True, "said": ""}
        said = _tail(os.path.join(self.directory, "logs", f"{role}.out"), 1500)
        return {"alive": False, "said": said}

    def stop(self, roles: list[str], grace_s: float) -> dict[str, Any]:
        """End these roles, in order: politely first, by force after the limit, and then whatever
        they started and left behind. Returns who needed force and who still lives."""
        forced: list[int] = []
        for role in roles:
            pids = self._pids_of(role)
            for pid in pids:
                _signal(pid, signal.SIGTERM)
            self._wait_gone(pids, grace_s)
            left = [pid for pid in {*pids, *self._marked(role)} if self._lives(pid)]
            for pid in left:
                _signal(pid, signal.SIGKILL)
            forced += left
            self._wait_gone(left, 5.0)
            stale = os.path.join(self.directory, "run", f"{role}.json")
            if os.path.exists(stale) and not self._pids_of(role):
                os.unlink(stale)
        return {"forced": forced, "left": self.processes()["left"]}

    def processes(self) -> dict[str, Any]:
        """Return every process that belongs to this place, in whatever way."""
        pids = sorted({*self._marked(None), *self._pids_of(None)})
        alive = [pid for pid in pids if self._lives(pid)]
        return {"left": [[pid, _command_line(pid).replace("\0", " ")] for pid in alive]}

    def keep(self) -> dict[str, Any]:
        """What was started stays, even when the launcher is gone."""
        self._kept = True
        return {}

    def abandon(self) -> None:
        """The launcher is gone: stop what it had begun, unless it said `keep`."""
        self.unlisten()
        if not self._kept:
            self.stop(list(reversed(self._started)), 5.0)

    # --- logs and leaving

    def logs(self, roles: list[str], lines: int, follow: bool) -> dict[str, Any]:
        """Say the last lines of the logs of these roles, and what is added, until input comes."""
        folder = os.path.join(self.directory, "logs")
        names = [name for role in roles for name in (f"{role}.log", f"{role}.out")]
        at: dict[str, int] = {}
        for name in names:
            path = os.path.join(folder, name)
            text = _tail(path, lines * 400)
            at[name] = os.path.getsize(path) if os.path.exists(path) else 0
            for line in text.splitlines()[-lines:]:
                self.say({"event": [name, line]})
        while follow and not select.select([self._requests], [], [], 0.2)[0]:
            for name in names:
                at[name] = self._say_new(os.path.join(folder, name), name, at[name])
        return {}

    def _say_new(self, path: str, name: str, at: int) -> int:
        try:
            size = os.path.getsize(path)
            with open(path, "rb") as file:
                file.seek(at if size >= at else 0)  # smaller: it has been turned over
                new = file.read(1 << 20)
        except FileNotFoundError:
            return at
        whole = new[: new.rfind(b"\n") + 1]
        for line in whole.decode(errors="replace").splitlines():
            self.say({"event": [name, line]})
        return (at if size >= at else 0) + len(whole)

    def purge(self, paths: list[str]) -> dict[str, Any]:
        """Remove the cluster's directories here; refused while any of its processes lives."""
        left = self.processes()["left"]
        if left:
            raise RefusedError(
                f"process {left[0][0]} still runs ({left[0][1]}): `cluster down` first"
            )
        for path in paths:
            if os.path.isdir(self._path(path)):
                shutil.rmtree(self._path(path))
        return {}

    # --- processes

    def _path(self, path: str) -> str:
        return os.path.abspath(os.path.expanduser(path))

    def _is_ours(self, pid: int, role: str | None) -> bool:
        argv = _command_line(pid).split("\0")
        if "-m" not in argv or "--dir" not in argv or not self._lives(pid):
            return False
        at_role, at_dir = argv.index("-m") + 1, argv.index("--dir") + 1
        if max(at_role, at_dir) >= len(argv) or argv[at_dir] != self.directory:
            return False
        return role is None or argv[at_role] == role

    def _pids_of(self, role: str | None) -> list[int]:
        return [pid for pid in _all_pids() if self._is_ours(pid, role)]

    def _marked(self, role: str | None) -> list[int]:
        """Processes that inherited the marks of a daemon of this place, however far removed."""
        place = f"{PLACE_MARK}={self.directory}\0".encode()
        mark = b"" if role is None else f"{ROLE_MARK}={role}\0".encode()
        own = os.getpid()
        found: list[int] = []
        for pid in _all_pids():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environment = b"\0" + file.read() + b"\0"
            except OSError:
                continue  # gone, or another user's
            if b"\0" + place in environment and b"\0" + mark in environment and pid != own:
                found.append(pid)
        return found

    def _lives(self, pid: int) -> bool:
        child = self._children.get(pid)
        if child is not None:
            return child.poll() is None
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[0] != b"Z"
        except (OSError, IndexError):
            return False

    def _wait_gone(self, pids: list[int], limit_s: float) -> None:
        deadline_s = time.monotonic() + limit_s
        while any(self._lives(pid) for pid in pids) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").rstrip("\0")
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was quicker
        os.kill(pid, number)


def _clean_environment() -> dict[str, str]:
    """What a daemon inherits: nothing that changes how its Python behaves."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MRSTREAM_"))}


def _tail(path: str, count_bytes: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - count_bytes))
            return file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    operation.__name__: operation
    for operation in (
        Agent.hello,
        Agent.check,
        Agent.listen,
        Agent.unlisten,
        Agent.reach,
        Agent.have,
        Agent.put,
        Agent.read,
        Agent.names,
        Agent.files,
        Agent.fetch,
        Agent.set_aside,
        Agent.install,
        Agent.modules,
        Agent.running,
        Agent.start,
        Agent.alive,
        Agent.stop,
        Agent.processes,
        Agent.keep,
        Agent.logs,
        Agent.purge,
    )
}


def main() -> None:
    """Serve the launcher until it goes."""
    requests, out = os.fdopen(0, "rb", buffering=0, closefd=False), sys.stdout.buffer
    reader = _Reader(requests)
    agent = Agent(out, requests)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the terminal's Ctrl-C is the launcher's to judge
    try:
        while True:
            line = reader.line()
            if not line:
                break
            request = json.loads(line)
            do = request.pop("do")
            if "bytes" in request:
                request["payload"] = reader.exactly(request.pop("bytes"))
            try:
                reply: dict[str, Any] = {"ok": OPERATIONS[do](agent, **request)}
            except (RefusedError, OSError) as error:
                reply = {"error": str(error)}
            agent.say(reply)
    except (BrokenPipeError, EOFError):
        pass  # the launcher is gone; see `abandon`
    finally:
        agent.abandon()


class _Reader:
    """Lines and raw bytes from one descriptor, without reading ahead past what select can see."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._held = b""

    def line(self) -> bytes:
        while b"\n" not in self._held:
            more = self._source.read(65536)
            if not more:
                return b""
            self._held += more
        line, _, self._held = self._held.partition(b"\n")
        return line

    def exactly(self, count: int) -> bytes:
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


if __name__ == "__main__":
    main()
