"""Starts a user's program: a process in a group of its own, with three pipes and no more of ours.

Takes the words to execute, a directory and an environment; gives the process id and our ends of the
pipes. Uses posix_spawn: no page table is copied, and the thousand variables of a task are encoded
in C. Never waits for the program.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from mrstream.mapreduce.program.errors import CommandFailed
from mrstream.streaming.task.child import cannot_run

_SHELL = "/bin/sh"
# Python, and the zygote, ignore some signals, and what is ignored stays so across exec: a program
# would not hear the SIGTERM of its own `timeout`.
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)
_working_directory = threading.Lock()


class Spawned(msgspec.Struct, frozen=True):
    """A program that runs, and our ends of its pipes."""

    pid: int
    stdin: int
    stdout: int
    stderr: int


def spawn(argv: Sequence[str], directory: str, environment: Mapping[str, str]) -> Spawned:
    """Start a program; CommandFailed, as a shell would say it, if the system cannot."""
    keep_descriptors_from_programs()
    pipes = [os.pipe() for _ in range(3)]
    (stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr) = pipes
    try:
        pid = _execute(argv, directory, environment, (stdin, stdout, stderr))
    except OSError as error:
        for descriptor in (our_stdin, our_stdout, our_stderr):
            os.close(descriptor)
        raise CommandFailed(
            cannot_run(argv[0], error.errno or 0),
            exit_code=127 if error.errno == errno.ENOENT else 126,
            argv=list(argv),
        ) from None
    finally:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
    return Spawned(pid, our_stdin, our_stdout, our_stderr)


@functools.cache
def keep_descriptors_from_programs() -> None:
    """See to it, once, that programs get none of the descriptors that we were started with.

    Those that Python opens are closed on exec anyway.
    """
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the listing's own


def _execute(
    argv: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    standard: tuple[int, int, int],
) -> int:
    def execute(words: Sequence[str]) -> int:
        return os.posix_spawnp(
            words[0],
            list(words),
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, descriptor, number)
                for number, descriptor in enumerate(standard)
            ],
            setpgroup=0,
            setsigdef=_DEFAULT_SIGNALS,
        )

    with _inside(directory):
        try:
            return execute(argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return execute([_SHELL, *argv])  # a text file without `#!` (spec 7.2)


@contextmanager
def _inside(directory: str) -> Iterator[None]:
    """Be in a directory for a moment: what is spawned then begins there.

    Nothing of an attempt uses a relative path, so no other thread notices.
    """
    with _working_directory:
        before = os.open(".", os.O_PATH)
        try:
            os.chdir(directory)
            yield
        finally:
            os.fchdir(before)
            os.close(before)
