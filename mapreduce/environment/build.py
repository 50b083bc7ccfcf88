"""Builds environments: with uv, with pip where there is no uv, or out of an archive.

Takes a source and an empty directory; fills it, telling how it goes. What the tools say is passed
on line by line, and their last lines are the error if they fail. Never decides where, and never
looks whether it is needed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence

from mrstream.mapreduce.environment import tree
from mrstream.mapreduce.environment.source import (
    LOCK_FILE,
    Kind,
    Source,
    is_package,
    project_of,
)
from mrstream.mapreduce.job.environment import BadEnvironment, this_platform
from mrstream.streaming.task import shipping

Say = Callable[[str], None]
_LINES_MAX = 12
"""So many of a failed tool's last lines are the error."""
_LINE_CHARACTERS_MAX = 500
_OTHER_PYTHON = re.compile(r"-cp(3)(\d+)-")


def fill(source: Source, root: str, lock: int, say: Say) -> None:
    """Make the environment of a source in a directory that is not there yet. `lock` is a locked
    descriptor, which the tools hold, too: whoever waits for it waits for them, if we die."""
    if source.kind.is_built:
        _install(source, root, lock, say)
        tree.relocate_scripts(root)
    elif source.kind is Kind.ARCHIVE:
        say(f"unpacking {source.path}")
        _unpack(source.path, root)
    else:
        say(f"unpacking {source.path}")
        _unpack_pex(source.path, root)


def _install(source: Source, root: str, lock: int, say: Say) -> None:
    tool = _Tool(os.path.dirname(source.path), lock, say)
    say(
        f"building {source.path} with {tool.name} for Python {this_platform().python}; "
        "the next job that needs it finds it"
    )
    tool.make_venv(root)
    if source.kind is Kind.REQUIREMENTS:
        tool.install(root, ["-r", source.path])
        return
    said = project_of(source.path)
    with tempfile.TemporaryDirectory(prefix="mrstream-environment-") as room:
        wanted = os.path.join(room, "requirements.txt")
        if os.path.exists(os.path.join(os.path.dirname(source.path), LOCK_FILE)):
            tool.export_lock(wanted)
        else:
            _write_dependencies(said, wanted)
        tool.install(root, ["-r", wanted])
    if is_package(said):
        tool.install(root, ["--no-deps", os.path.dirname(source.path)])


def _write_dependencies(said: dict[str, object], path: str) -> None:
    project = said.get("project")
    found = project.get("dependencies", []) if isinstance(project, dict) else []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise BadEnvironment("pyproject.toml: [project] dependencies must be a list of texts")
    if isinstance(project, dict) and "dependencies" in (project.get("dynamic") or ()):
        raise BadEnvironment(
            "pyproject.toml: its dependencies are dynamic; run `uv lock`, and its uv.lock is used"
        )
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{each}\n" for each in found)


class _Tool:
    """uv, or pip."""

    def __init__(self, directory: str, lock: int, say: Say) -> None:
        """Run it in this directory: its own settings may lie there, and paths are meant so."""
        self._uv = find_uv()
        self._directory = directory
        self._lock = lock
        self._say = say
        self._base = getattr(sys, "_base_executable", None) or sys.executable

    @property
    def name(self) -> str:
        return "uv" if self._uv else "pip"

    def make_venv(self, root: str) -> None:
        if self._uv:
            self._run([self._uv, "venv", "--quiet", "--no-project", "--python", self._base, root])
        else:
            self._run([self._base, "-m", "venv", "--without-pip", root])

    def install(self, root: str, words: Sequence[str]) -> None:
        python = os.path.join(root, "bin", "python")
        if self._uv:
            self._run([self._uv, "pip", "install", "--python", python, *words])
        else:
            own = [sys.executable, "-m", "pip", "--python", python, "install", "--no-input"]
            self._run([*own, "--disable-pip-version-check", "--progress-bar", "off", *words])

    def export_lock(self, target: str) -> None:
        if not self._uv:
            raise BadEnvironment(
                f"{os.path.join(self._directory, LOCK_FILE)} needs uv: `pip install uv`"
            )
        self._run(
            [
                *(self._uv, "export", "--quiet", "--frozen", "--no-dev", "--no-emit-project"),
                *("--format", "requirements-txt", "--output-file", target),
            ]
        )

    def _run(self, words: Sequence[str]) -> None:
        last: deque[str] = deque(maxlen=_LINES_MAX)
        environment = {
            n: v for n, v in os.environ.items() if n not in ("VIRTUAL_ENV", "PYTHONHOME")
        }
        try:
            process = subprocess.Popen(
                words, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environment, pass_fds=(self._lock,), process_group=0,
            )  # fmt: skip
        except OSError as error:
            raise BadEnvironment(f"{words[0]} cannot be run: {error}") from None
        try:
            assert process.stdout is not None
            for data in process.stdout:
                line = data.decode("utf-8", "replace").rstrip()[:_LINE_CHARACTERS_MAX]
                if line:
                    last.append(line)
                    self._say(line)
            status = process.wait()
        except BaseException:
            # With the build backends and compilers that it has started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if status != 0:
            shown = "\n".join(f"  | {line}" for line in last)
            if "No module named pip" in shown:
                raise BadEnvironment(
                    "there is neither uv nor pip here: install uv (`pipx install uv`)"
                )
            raise BadEnvironment(f"{self.name} could not build the environment:\n{shown}")


def find_uv() -> str | None:
    """Return where uv is: beside our own Python, or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    return beside if os.access(beside, os.X_OK) else shutil.which("uv")


# --- archives


def _unpack(archive: str, root: str) -> None:
    try:
        shipping.unpack(archive, root)
    except shipping.LeadsOut as error:
        raise BadEnvironment(
            f"-env {error}; of a virtual environment leave bin/python* out (`tar --exclude`): each "
            "host has its own"
        ) from None
    except shipping.BadArchive as error:
        raise BadEnvironment(f"-env {error}") from None


def _unpack_pex(archive: str, root: str) -> None:
    """Lay a pex out as a virtual environment whose packages lie in directories of their own."""
    version = this_platform().python
    packages = os.path.join(root, "lib", f"python{version}", "site-packages")
    os.makedirs(packages)
    with tempfile.TemporaryDirectory(prefix="mrstream-environment-") as room:
        named = os.path.join(room, "pex.zip")  # its suffix says how it is unpacked
        os.symlink(archive, named)
        _unpack(named, os.path.join(root, "pex"))
    wheels = os.path.join(root, "pex", ".deps")
    names = sorted(os.listdir(wheels)) if os.path.isdir(wheels) else []
    for name in names:
        found = _OTHER_PYTHON.search(name)
        if found is not None and "-abi3-" not in name and f"{found[1]}.{found[2]}" != version:
            raise BadEnvironment(f"-env {archive} is for another Python than {version}: {name}")
    with open(os.path.join(packages, "pex.pth"), "w", encoding="utf-8") as file:
        file.writelines(f"../../../pex/.deps/{name}\n" for name in names)
        file.write("../../../pex\n")
