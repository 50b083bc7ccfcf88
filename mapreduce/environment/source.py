"""What `-env` names, and the key that stands for its content.

    requirements.txt    the text, that of the files it includes, and the local packages it names
    pyproject.toml      its text and that of uv.lock; of a project that is a package, all its files
    a directory         a virtual environment: all of its files
    an archive          (conda-pack, a packed virtual environment, a pex): its bytes

Of what is yet to be built the key also holds the version of Python and the platform that it is
built for. Reads files; changes and builds nothing.
"""

from __future__ import annotations

import enum
import hashlib
import os
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from mrstream.mapreduce.environment.tree import is_left_out
from mrstream.mapreduce.job.environment import BadEnvironment, this_platform
from mrstream.streaming.task.shipping import is_archive

PROJECT_FILE = "pyproject.toml"
LOCK_FILE = "uv.lock"
PEX_SUFFIX = ".pex"
VENV_FILE = "pyvenv.cfg"
_FORMAT = "mrstream environment 1"
_REQUIREMENTS_BYTES_MAX = 4 << 20
_INCLUDES = ("-r", "--requirement", "-c", "--constraint")
_NOT_OF_A_PROJECT = ("__pycache__", "build", "dist", "node_modules")


class Kind(enum.Enum):
    """How an environment is given."""

    REQUIREMENTS = "requirements"
    PROJECT = "project"
    DIRECTORY = "directory"
    ARCHIVE = "archive"
    PEX = "pex"

    @property
    def is_built(self) -> bool:
        """Whether uv or pip makes it."""
        return self in (Kind.REQUIREMENTS, Kind.PROJECT)


class Source(msgspec.Struct, frozen=True):
    """An environment as the user gave it."""

    kind: Kind
    path: str
    key: str


def source_of(path: str) -> Source:
    """Say what an environment is given by; `BadEnvironment` if it is nothing of the kind."""
    if path.startswith("dfs://"):
        raise BadEnvironment(f"-env {path} is for jobs of its cluster, not of this machine")
    kind = _kind(path)
    try:
        facts: Iterator[str]
        match kind:
            case Kind.REQUIREMENTS:
                facts = _requirement_facts(path, [])
            case Kind.PROJECT:
                facts = _project_facts(path)
            case Kind.DIRECTORY:
                facts = _tree_facts(path, is_project=False)
            case _:
                facts = iter([_digest(path)])
        found = hashlib.sha256()
        for fact in (_FORMAT, kind.value, *_platform_facts(kind), *facts):
            found.update(fact.encode("utf-8", "surrogateescape") + b"\0")
    except OSError as error:
        raise BadEnvironment(f"-env {path} cannot be read: {error}") from None
    return Source(kind, os.path.abspath(path), found.hexdigest()[:40])


def _kind(path: str) -> Kind:
    name = os.path.basename(path)
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, VENV_FILE)):
            return Kind.DIRECTORY
        inside = os.path.exists(os.path.join(path, PROJECT_FILE))
        raise BadEnvironment(
            f"-env {path} is no virtual environment: it has no {VENV_FILE}; "
            + (
                f"for the project, name {os.path.join(path, PROJECT_FILE)}"
                if inside
                else "a conda environment travels as the archive that conda-pack makes"
            )
        )
    if name == PROJECT_FILE:
        return Kind.PROJECT
    if is_archive(path):
        return Kind.ARCHIVE
    return Kind.PEX if name.endswith(PEX_SUFFIX) else Kind.REQUIREMENTS


def _platform_facts(kind: Kind) -> list[str]:
    here = this_platform()
    return [here.python, here.machine, here.libc.partition(" ")[0]] if kind.is_built else []


# --- requirements


def requirement_words(line: str) -> list[str]:
    """Cut a line of a requirements file into words; comments are none."""
    words = []
    for word in line.split():
        if word.startswith("#"):
            break
        option, equals, value = word.partition("=")
        words += [option, value] if option.startswith("--") and equals else [word]
    return words


def _requirement_facts(path: str, seen: list[str]) -> Iterator[str]:
    real = os.path.realpath(path)
    if real in seen:
        return
    seen.append(real)
    text = read_text(path)
    yield text
    beside = os.path.dirname(os.path.abspath(path))
    for line in text.splitlines():
        words = requirement_words(line)
        for before, word in zip(["", *words], words, strict=False):
            place = os.path.join(beside, word.removeprefix("file://"))
            if before in _INCLUDES:
                yield from _requirement_facts(place, seen)
            elif _is_path(before, word) and os.path.exists(place):
                yield from _contents(place)


def _is_path(before: str, word: str) -> bool:
    return word.startswith((".", "/", "file:")) or before in ("-f", "--find-links", "-e")


def _contents(place: str) -> Iterator[str]:
    if os.path.isdir(place):
        yield from _tree_facts(place, is_project=True)
    else:
        yield _digest(place)


def read_text(path: str) -> str:
    """Return the text of a requirements or project file."""
    try:
        with open(path, "rb") as file:
            data = file.read(_REQUIREMENTS_BYTES_MAX + 1)
        if len(data) > _REQUIREMENTS_BYTES_MAX or b"\0" in data:
            raise ValueError("it is no text")
        return data.decode()
    except ValueError as error:
        raise BadEnvironment(
            f"-env {path} is no list of requirements: {error}; -env takes requirements.txt, "
            "pyproject.toml, the directory of a virtual environment, or an archive (.tar.gz, .pex)"
        ) from None


# --- projects


def project_of(path: str) -> dict[str, Any]:
    """Return what a pyproject.toml says."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise BadEnvironment(f"-env {path} is no TOML: {error}") from None


def is_package(said: dict[str, Any]) -> bool:
    """Whether a project is to be installed itself, not only what it depends on."""
    wanted = said.get("tool", {}).get("uv", {}).get("package")
    return bool(wanted) if wanted is not None else "build-system" in said


def _project_facts(path: str) -> Iterator[str]:
    said = project_of(path)
    directory = os.path.dirname(os.path.abspath(path))
    yield read_text(path)
    lock = os.path.join(directory, LOCK_FILE)
    yield read_text(lock) if os.path.exists(lock) else ""
    if is_package(said):
        yield from _tree_facts(directory, is_project=True)


# --- trees


def _tree_facts(top: str, *, is_project: bool) -> Iterator[str]:
    """Yield name and content of every file that matters, in one order."""
    for place, names, files in os.walk(top):
        names.sort()
        if is_project:
            names[:] = [name for name in names if not _is_foreign(place, name)]
        for name in sorted([*files, *(n for n in names if os.path.islink(os.path.join(place, n)))]):
            path = os.path.join(place, name)
            relative = os.path.relpath(path, top)
            if is_project or not is_left_out(relative, path):
                yield relative
                yield os.readlink(path) if os.path.islink(path) else _mode(path) + _digest(path)


def _is_foreign(place: str, name: str) -> bool:
    """Whether a directory of a project is none of its sources."""
    path = os.path.join(place, name)
    is_venv = os.path.exists(os.path.join(path, VENV_FILE))
    return name.startswith(".") or name in _NOT_OF_A_PROJECT or is_venv


def _mode(path: str) -> str:
    return "x" if os.access(path, os.X_OK) else "-"


def _digest(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
