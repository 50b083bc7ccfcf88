"""Addresses (`10.0.0.2:7700`, `[::1]:7700` or `unix:/path`) and the sockets behind them."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import struct

from mrstream.cluster.errors import BadConfig, ClusterError, HostUnreachable

CONNECT_S_MAX = 5.0
BULK_BUFFER_BYTES = 1024 * 1024
LISTEN_BACKLOG = 1024
# A peer that lost power says nothing; the kernel asks after 5 s of silence and gives up after 15 s.
_KEEPALIVE_IDLE_S, _KEEPALIVE_INTERVAL_S, _KEEPALIVE_COUNT = 5, 5, 2
_UNACKNOWLEDGED_MS_MAX = 15_000


def split_address(address: str) -> tuple[str, int]:
    """Return (host, port) of a TCP address."""
    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise BadConfig(f"address {address[:300]!r} is not of the form HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return the address as text; an IPv6 host gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unix_path(address: str) -> str | None:
    """Return the path of a `unix:` address, None for any other."""
    return address[5:] if address.startswith("unix:") else None


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and notice a peer that vanished without a word."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS_MAX),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def limit_waits(sock: socket.socket, timeout_s: float) -> None:
    """Make the socket block, and the kernel end any wait for it with EAGAIN after that time. A
    timeout of Python's own costs a call of poll, and two changes of thread, for every read."""
    sock.settimeout(None)
    seconds, fraction = divmod(timeout_s, 1.0)
    limit = struct.pack("@ll", int(seconds), int(fraction * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, limit)


def connect_socket(address: str, timeout_s: float = CONNECT_S_MAX) -> socket.socket:
    """Return a connected blocking socket (its timeout is still `timeout_s`)."""
    path = unix_path(address)
    try:
        if path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(timeout_s)
                sock.connect(path)
            except (OSError, ValueError):
                sock.close()
                raise
            return sock
        sock = socket.create_connection(split_address(address), timeout_s)
    except (OSError, ValueError) as error:  # a peer told us the address: it may be no name at all
        raise unreachable(address, error) from error
    tune(sock)
    return sock


def unreachable(address: str, error: BaseException) -> HostUnreachable:
    """Return the error that says which address did not answer, and why."""
    if isinstance(error, BlockingIOError):
        reason = "timed out"  # EAGAIN of a socket that blocks: see limit_waits
    else:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return HostUnreachable(f"{address[:300]}: {reason}", address=address)


WHAT_TO_DO = (
    "`mrstream cluster status` shows which daemons run, `mrstream cluster up` starts those that do "
    "not"
)


def why_wait(which: str, error: ClusterError) -> str:
    """Return what people are told who wait for a master: it is silent, or cannot do it yet."""
    if isinstance(error, HostUnreachable):
        return f"the {which} master does not answer ({error}): {WHAT_TO_DO}"
    return f"the {which} master cannot do it yet ({error}): `mrstream cluster status` shows more"


def listen_socket(address: str) -> socket.socket:
    """Return a listening socket; port 0 takes any free one."""
    path = unix_path(address)
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(path)
            os.chmod(path, 0o600)
            sock.listen(LISTEN_BACKLOG)
        except OSError:
            sock.close()
            raise
        return sock
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(LISTEN_BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    return sock


def address_of(sock: socket.socket) -> str:
    """Return the address that a listening socket has got."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    return join_address(name[0], name[1])


def wait_readable(sock: socket.socket, timeout_s: float | None) -> bool:
    """Wait until there is something to read; False: the time is over."""
    return _poll(sock, select.POLLIN, timeout_s)


def wait_writable(sock: socket.socket, timeout_s: float | None) -> bool:
    """Wait until something can be sent; False: the time is over."""
    return _poll(sock, select.POLLOUT, timeout_s)


def _poll(sock: socket.socket, event: int, timeout_s: float | None) -> bool:
    poller = select.poll()
    poller.register(sock, event)
    return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))
