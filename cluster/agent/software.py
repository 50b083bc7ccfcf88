"""mrstream on the host: put into a virtual environment of its own, or found where it is."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from mrstream.cluster.agent.files import full_path
from mrstream.cluster.agent.refusal import RefusedError, reason

POLL_S = 0.02
_WHAT_IS_THERE = """\
import sys, json, importlib.util as u, importlib.metadata as m
def there(n):
    try: return u.find_spec(n) is not None
    except ModuleNotFoundError: return False
print(json.dumps([[n for n in sys.argv[1:] if there(n)], m.version('mrstream')]))
"""


INSTALL = "install mrstream"


def install(
    venv: str,
    wheels: list[str],
    requirement: str,
    no_index: bool,
    launcher_is_gone: Callable[[], bool],
) -> dict[str, Any]:
    """Make a virtual environment with these wheels in it, whole or not at all."""
    venv = full_path(venv)
    done = os.path.join(venv, "installed")
    python = os.path.join(venv, "bin", "python")
    os.makedirs(os.path.dirname(venv), mode=0o700, exist_ok=True)
    with open(venv + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(done):
            shutil.rmtree(venv, ignore_errors=True)
            make = [sys.executable, "-m", "venv", venv]
            _run(make, "make a virtual environment", launcher_is_gone)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            if no_index:
                pip += ["--no-index", "--find-links", full_path(os.path.dirname(wheels[0]))]
            else:
                pip += ["--retries", "2"]  # where there is no network, the launcher has another way
            _run([*pip, full_path(requirement)], INSTALL, launcher_is_gone)
            with open(done, "w") as file:
                file.write("\n")
    return {"python": python}


def _run(argv: list[str], purpose: str, launcher_is_gone: Callable[[], bool]) -> None:
    """Run a command to its end, but not beyond the end of our launcher."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        while process.poll() is None:
            if launcher_is_gone():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise EOFError
            time.sleep(POLL_S)
        said.seek(0)
        words = said.read().decode(errors="replace")
    if process.returncode != 0:
        raise RefusedError(f"cannot {purpose} ({' '.join(argv[:4])} …): {_gist(words)}")


def _gist(words: str) -> str:
    """The lines of pip that say why: its errors, else the last ones; whole lines only."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return " / ".join((errors or lines)[-3:]) or "it said nothing"


def modules(python: str, names: list[str]) -> dict[str, Any]:
    """Say which of these modules that Python can import, and its mrstream's version."""
    python = full_path(python)
    argv = [python, "-P", "-c", _WHAT_IS_THERE, *names]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, env=clean_environment())
    except OSError as error:
        raise RefusedError(f"{python} cannot be run: {reason(error)}") from None
    if ended.returncode != 0:
        last = ended.stderr.strip().splitlines()[-1:] or ["?"]
        raise RefusedError(f"{python} has no mrstream: {last[0]}")
    try:
        found, version = json.loads(ended.stdout)
    except (ValueError, TypeError):
        raise RefusedError(f"{python} says what it should not: {ended.stdout[:200]!r}") from None
    return {"found": found, "version": version}


def clean_environment() -> dict[str, str]:
    """What a daemon inherits: nothing that changes how its Python behaves."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MRSTREAM_"))}
