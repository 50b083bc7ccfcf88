"""What the launcher wants to know of a host before it changes anything there."""

from __future__ import annotations

import errno
import getpass
import os
import platform
import resource
import socket
import sys
import tempfile
import threading
import time
from typing import Any

from mrstream.cluster.agent.files import full_path
from mrstream.cluster.agent.refusal import RefusedError, reason


def facts() -> dict[str, Any]:
    """Say who and what this host is."""
    return {
        "python": sys.executable,
        "version": platform.python_version(),
        "user": user_name(),
        "home": os.path.expanduser("~"),
        "hostname": socket.gethostname(),
        "cores": os.cpu_count() or 1,
        "machine": platform.machine(),
        "wall_s": time.time(),
    }


def user_name() -> str:
    """Return who we are, also where the system has no name for it (a container, say)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def lift_file_limit() -> None:
    """Let this process, and the daemons that inherit from it, open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check(address: str, ports: list[int], disks: list[str]) -> dict[str, Any]:
    """Say how much room each disk has, and which ports cannot be used and why."""
    busy: dict[str, str] = {}
    for port in ports:
        with socket.socket(_family(address), socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((address, port))
                sock.listen(1)
            except OSError as error:
                busy[str(port)] = reason(error)
    return {"busy": busy, "free": {path: free_bytes(path) for path in map(full_path, disks)}}


def free_bytes(path: str) -> int:
    """Return the room in a directory that we can write to; it is made if need be."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x" * 4096)
            file.flush()
        usage = os.statvfs(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and os.path.isdir(path):
            return 0  # what is there can be read and deleted
        raise RefusedError(
            f"{user_name()} cannot write to {path} ({reason(error)}): make room or give "
            "permission there, or choose another dir or disks"
        ) from None
    return usage.f_bavail * usage.f_frsize


class Probe:
    """A port that accepts connections for a while, so that other hosts can try to reach us."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def listen(self, address: str, port: int) -> dict[str, Any]:
        at = (address, port)
        self._socket = socket.create_server(at, family=_family(address), backlog=1024)
        return {}

    def unlisten(self) -> dict[str, Any]:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        return {}


def reach(targets: dict[str, list[Any]], limit_s: float) -> dict[str, Any]:
    """Try to connect to other hosts; say which did not answer, and why."""
    failed: dict[str, str] = {}

    def attempt(name: str, address: str, port: int) -> None:
        try:
            socket.create_connection((address, port), limit_s).close()
        except OSError as error:
            failed[name] = reason(error)

    threads = [
        threading.Thread(target=attempt, args=(name, *target)) for name, target in targets.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"failed": failed}


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
