"""Forks attempts, and ends them: a small process that is started before any thread, loop or socket.

Takes orders (bytes) over a socket pair, each with a socket for the attempt's
messages; gives back how each attempt ended and what it used. Every attempt is the leader of its own
session. When the parent's end of the socket closes, for whatever reason, every attempt and all that
came from it is killed, and the directories that the parent named are removed: nothing outlives a
killed parent. Never runs a user's program itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NoReturn

import msgspec

from mrstream.mapreduce.program.children import (
    SWEEP_S_MAX,
    become_subreaper,
    children_of,
    kill_and_wait,
)
from mrstream.streaming.conf.properties import from_wire, to_wire

if TYPE_CHECKING:
    from mrstream.mapreduce.attempt.attempt_report import Message

MARK = "MRSTREAM_ATTEMPT"
"""Name of the variable that every process of an attempt has in its environment."""

_DATAGRAM_BYTES_MAX = 1 << 16
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 << 20

Target = Callable[[bytes, int, int], int]
"""What an attempt runs: (order, report descriptor, lifeline descriptor) → exit status.

The lifeline becomes readable when the zygote is gone: then the attempt must end what it started,
and itself.
"""


class Start(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Fork an attempt; its order and its pipe travel as descriptors."""

    token: int
    mark: str


class Kill(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End an attempt and everything that came from it."""

    token: int


class Remove(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Remember a directory that must be gone once the parent is gone; or forget it again."""

    path: str
    forget: bool = False


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How an attempt ended: exit status, or minus the signal."""

    token: int
    status: int


_encode = msgspec.msgpack.Encoder().encode
_decode_order = msgspec.msgpack.Decoder(Start | Kill | Remove).decode
_decode_ended = msgspec.msgpack.Decoder(Ended).decode


class Zygote:
    """The parent's side: starts and kills attempts, and hears how they ended."""

    def __init__(self, target: Target, load: Callable[[], None] = lambda: None) -> None:
        """Fork the zygote; it calls `load` once, and `target` is what every attempt runs."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _run_and_exit(lambda: _Nursery(theirs, target).run(load))
        theirs.close()
        self._socket = ours
        self._token = 0

    def fileno(self) -> int:
        """Return the descriptor that is readable when an attempt has ended."""
        return self._socket.fileno()

    def start(self, order: bytes, mark: str) -> tuple[int, int]:
        """Fork an attempt; return its token, and the socket to read its messages from.

        What is written to that the attempt reads from its end.
        """
        self._token += 1
        report, theirs = (end.detach() for end in socket.socketpair())
        paper = os.memfd_create("order", os.MFD_CLOEXEC)
        try:
            os.write(paper, order)
            os.lseek(paper, 0, os.SEEK_SET)
            message = _encode(Start(self._token, mark))
            socket.send_fds(self._socket, [message], [theirs, paper])
        finally:
            os.close(theirs)
            os.close(paper)
        return self._token, report

    def kill(self, token: int) -> None:
        """End an attempt and all that came from it; `Ended` still follows."""
        self._socket.send(_encode(Kill(token)))

    def remove_at_end(self, path: str) -> None:
        """Have a directory removed when this process is gone, even if it is killed."""
        self._socket.send(_encode(Remove(to_wire(path))))

    def keep(self, path: str) -> None:
        """Take back `remove_at_end`."""
        self._socket.send(_encode(Remove(to_wire(path), forget=True)))

    def ended(self) -> Ended:
        """Take the next `Ended`; blocks until there is one. EOFError if the zygote died."""
        data = self._socket.recv(_DATAGRAM_BYTES_MAX)
        if not data:
            raise EOFError("the process that starts attempts is gone")
        return _decode_ended(data)

    def last_words(self, token: int) -> Iterable[Message]:
        """Return none: what a forked attempt has to say comes through its own descriptor."""
        return ()

    def close(self) -> None:
        """Kill every attempt, have the named directories removed, and wait for that; once."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class _Nursery:
    """The zygote's side."""

    def __init__(self, control: socket.socket, target: Target) -> None:
        self._control = control
        self._target = target
        self._attempts: dict[int, int] = {}  # pid → token
        self._remove: dict[str, None] = {}
        self._lifeline, self._lifeline_held = os.pipe()
        self._adopts = become_subreaper()

    def run(self, load: Callable[[], None]) -> int:
        """Serve orders until the parent is gone."""
        _let_go_of_the_terminal()
        load()
        _keep_freed_memory()
        gc.freeze()
        wake, wake_held = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_held, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                    self._reap()
                elif not self._serve():
                    self._end_all()
                    return 0

    def _serve(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._control, _DATAGRAM_BYTES_MAX, 2, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return False
        if not data:
            return False
        match _decode_order(data):
            case Start(token=token, mark=mark):
                self._fork(token, mark, *descriptors)
            case Kill(token=token):
                for pid in [pid for pid, known in self._attempts.items() if known == token]:
                    _kill_group(pid)
            case Remove(path=path, forget=False):
                self._remove[from_wire(path)] = None
            case Remove(path=path):
                self._remove.pop(from_wire(path), None)
        return True

    def _fork(self, token: int, mark: str, report: int, paper: int) -> None:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            os.close(self._lifeline_held)
            become_subreaper()
            os.environ[MARK] = mark
            _run_and_exit(lambda: self._target(_read_all(paper), report, self._lifeline))
        os.close(report)
        os.close(paper)
        self._attempts[pid] = token

    def _reap(self) -> None:
        """Tell the parent of each attempt that ended, once nothing of it is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            token = self._attempts.pop(pid, None)
            if token is None:
                continue  # a stray that we adopted; it ended by itself
            _kill_group(pid)
            self._kill_strays()
            ended = Ended(token, os.waitstatus_to_exitcode(status))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._control.send(_encode(ended))

    def _kill_strays(self) -> None:
        """Kill what attempts left behind and the system gave to us: programs in a group or session
        of their own, then what loses its parent by that, until there is none."""
        until = time.monotonic() + SWEEP_S_MAX
        while self._adopts and time.monotonic() < until:
            strays = [pid for pid in children_of(os.getpid()) if pid not in self._attempts]
            if not strays:
                return
            kill_and_wait(strays)

    def _end_all(self) -> None:
        for pid in self._attempts:
            _kill_group(pid)
        until = time.monotonic() + SWEEP_S_MAX
        pids = list(self._attempts)
        while time.monotonic() < until:
            self._kill_strays()
            try:
                pid, _ = os.waitpid(-1, 0 if self._attempts or self._adopts else os.WNOHANG)
            except ChildProcessError:
                break
            self._attempts.pop(pid, None)
        if not self._adopts:
            kill_marked(pids)
        for path in self._remove:
            shutil.rmtree(path, ignore_errors=True)


def kill_marked(session_pids: Iterable[int]) -> None:
    """Kill processes by the mark in their environment, where the system adopts none for us."""
    wanted = f"{MARK}=".encode()
    sessions = set(session_pids)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as environment:
                marked = any(v.startswith(wanted) for v in environment.read().split(b"\0"))
            if marked or os.getsid(int(name)) in sessions:
                os.kill(int(name), signal.SIGKILL)


def _keep_freed_memory() -> None:
    """Have blobs of a megabyte reuse their memory instead of asking the system for clean pages.

    A quarter of the CPU time of a sort went into clearing pages that were given back a moment ago.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _let_go_of_the_terminal() -> None:
    """Leave standard input and output to the parent, and Ctrl-C for it to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def _kill_group(pid: int) -> None:
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as paper:
        return paper.read()


def _run_and_exit(run: Callable[[], int]) -> NoReturn:
    """Run, and leave at once: no exit handler of the parent may run twice."""
    status = 70
    try:
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)
