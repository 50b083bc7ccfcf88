"""Environments on the submitter's disk: each built once, used in place by jobs of this machine.

    HOME/environments/KEY/          the environment
                      KEY/.mrstream-environment   what it needs; written last: without it, half
                      KEY.lock      held while it is built, and shared while a job uses it

Of two builds of one environment the second waits for the first. What was not used for longest goes
once all are larger than `KEPT_BYTES_MAX`; what is in use stays. A virtual environment that the user
made is used where it is. Knows nothing of clusters.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable

import msgspec

from mrstream.cluster.units import decimal_size
from mrstream.mapreduce.environment import build, tree
from mrstream.mapreduce.environment.build import Say
from mrstream.mapreduce.environment.source import Kind, Source, source_of
from mrstream.mapreduce.environment.tree import tree_bytes
from mrstream.mapreduce.history import home, write_whole
from mrstream.mapreduce.job.environment import FUNCTIONS_LINK, BadEnvironment, Environment
from mrstream.mapreduce.job.job import JobSpec
from mrstream.streaming.conf.properties import from_wire, to_wire

KEPT_BYTES_MAX = 20 * 10**9
MARK = ".mrstream-environment"
_MARK_BYTES_MAX = 1 << 16


def use_here(spec: JobSpec, say: Say) -> JobSpec:
    """Return the job with its environment as it lies on this machine, built if need be. It stays as
    long as this process does."""
    if spec.environment is None or spec.environment.path:
        return spec
    environment = here(source_of(from_wire(spec.environment.source)), say)
    refuse_other_python(spec, environment)
    return msgspec.structs.replace(spec, environment=environment)


def refuse_other_python(spec: JobSpec, environment: Environment) -> None:
    """Raise `BadEnvironment` if the job has functions, which are of this Python, for another."""
    ours = "{}.{}".format(*sys.version_info[:2])
    has_functions = any(item.link == FUNCTIONS_LINK for item in spec.shipped)
    if has_functions and environment.python != ours:
        raise BadEnvironment(
            f"the environment {environment.source} has Python {environment.python}, and the job's "
            f"functions are of Python {ours}: run this with the Python of the environment, or "
            "write the job's programs as commands"
        )


def here(source: Source, say: Say) -> Environment:
    """Return an environment on this machine, built if it is not there yet."""
    if source.kind is Kind.DIRECTORY:
        return _described(source.path, source)
    directory = directory_of(source.key)

    def fill(lock: int) -> Environment:
        began_s = time.monotonic()
        build.fill(source, directory, lock, say)
        root = tree.root_of(directory)
        try:
            environment = _described(root, source)
            tree.settle(root, environment)
        except BadEnvironment as error:
            # Where it lies for a moment says nothing to whoever named it.
            raise BadEnvironment(str(error).replace(root, f"-env {source.path}")) from None
        size, took_s = decimal_size(tree_bytes(directory)), time.monotonic() - began_s
        say(f"{source.path} is ready: {size} in {took_s:.1f} s")
        return environment

    return kept(source.key, fill, say)


def is_here(key: str) -> bool:
    """Whether this machine has the environment of a key, whole."""
    return _read_mark(key) is not None


def kept(key: str, fill: Callable[[int], Environment], say: Say) -> Environment:
    """Return the environment of a key, filled if it is not there, and keep it while we live."""
    lock = _held.setdefault(key, -1)
    if lock < 0:
        lock = _held[key] = _open_lock(key)
    directory = directory_of(key)
    while True:
        _share(lock, say)
        if (found := _read_mark(key)) is not None:
            os.utime(os.path.join(directory, MARK))
            return found
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _read_mark(key) is None:  # nobody was quicker
            _remove(directory)
            try:
                mark = msgspec.json.encode(fill(lock))
                write_whole(os.path.join(directory, MARK), mark, sync=True)
            except BaseException:
                _remove(directory)
                raise
            _evict(key, say)


def _described(root: str, source: Source) -> Environment:
    needs = tree.needs_of(root)
    return Environment(
        to_wire(source.path),
        source.key,
        to_wire(root),
        needs.python,
        source.kind is Kind.ARCHIVE and tree.brings_python(root),
        needs.machine,
        needs.libc,
    )


# --- the directory


def directory_of(key: str) -> str:
    return os.path.join(_root(), key)


def _root() -> str:
    return os.path.join(home(), "environments")


def _read_mark(key: str) -> Environment | None:
    try:
        with open(os.path.join(_root(), key, MARK), "rb") as file:
            return msgspec.json.decode(file.read(_MARK_BYTES_MAX), type=Environment)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        return None  # of another version: built anew


_held: dict[str, int] = {}
"""Descriptors of the environments that this process uses: their locks are shared while it lives."""


def _open_lock(key: str) -> int:
    os.makedirs(_root(), mode=0o700, exist_ok=True)
    return os.open(os.path.join(_root(), f"{key}.lock"), os.O_RDWR | os.O_CREAT, 0o600)


def _share(lock: int, say: Say) -> None:
    """Be one of those who use an environment, when nobody builds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another process is building this environment; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_SH)


def _evict(but: str, say: Say) -> None:
    """Delete what was not used for longest, until the rest fits."""
    entries = []
    for name in sorted(os.listdir(_root())):
        path = os.path.join(_root(), name)
        if os.path.isdir(path):
            mark = os.path.join(path, MARK)
            used_at_s = os.stat(mark).st_mtime if os.path.exists(mark) else 0.0
            entries.append((used_at_s, name, tree_bytes(path)))
    total = sum(size for _, _, size in entries)
    for _, name, size in sorted(entries):
        if total <= KEPT_BYTES_MAX:
            return
        if name != but and _evicted(name):
            total -= size
            say(
                f"the environment {name[:12]} is deleted: {_root()} may hold "
                f"{decimal_size(KEPT_BYTES_MAX)}"
            )


def _evicted(key: str) -> bool:
    """Delete an environment, unless somebody uses it."""
    lock = _open_lock(key)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(os.path.join(_root(), key))
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _remove(directory: str) -> None:
    """Remove an environment: first what says that it is whole."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, MARK))
    shutil.rmtree(directory, ignore_errors=True)
