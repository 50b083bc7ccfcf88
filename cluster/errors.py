"""What can go wrong, by what the caller does next; every error crosses the wire by its name.

    ClusterError
    ├── UserError      the request is wrong; trying again cannot help   → one line, its exit status
    │     BadConfig · NotTrusted · WrongCluster · NewerFormat · UnknownRequest
    ├── Unavailable    someone did not answer, or no longer may         → someone else, then later
    │     HostUnreachable · CallTimedOut · Overloaded · DaemonFault · Speechless · DiskFailed
    └── Corrupt        bytes fail their checksum                        → report, read another copy
          JournalCorrupt

`dfs`, `streaming` and `mapreduce` hang their own leaves on this tree. A bug is not in it: an
`AssertionError` and its like are caught at the top of a daemon only, which stops.
"""

from __future__ import annotations

from typing import Any, ClassVar

INTERRUPTED = 130
"""The exit status after Ctrl-C: what a shell has for a command that SIGINT ended."""


class ClusterError(Exception):
    """The root; `details` are plain values (numbers, strings, lists of them) that cross."""

    exit_status: ClassVar[int] = 1
    _by_name: ClassVar[dict[str, type[ClusterError]]] = {}

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = ClusterError._by_name.get(cls.__name__)
        # A module that is imported twice under one name (a reload) replaces its own classes only.
        assert known is None or known.__module__ == cls.__module__, (
            f"{cls.__module__}.{cls.__name__} and {known.__module__}.{known.__name__} "
            "would be one name on the wire"
        )
        ClusterError._by_name[cls.__name__] = cls

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.details))


def _rebuild(cls: type[ClusterError], message: str, details: dict[str, Any]) -> ClusterError:
    error = cls.__new__(cls, message)
    ClusterError.__init__(error, message)
    error.details = details  # not as keywords: a name from the wire may be any string, also "self"
    return error


class UserError(ClusterError):
    """The request is wrong; trying again cannot help."""


class Unavailable(ClusterError):
    """Someone did not answer, or no longer may: try another, then try later."""


class Corrupt(ClusterError):
    """Bytes fail their checksum: report the copy and read another."""


class BadConfig(UserError):
    """cluster.yaml cannot be used; the message lists every mistake, each with its line."""


class NotTrusted(UserError):
    """The other side did not prove that it holds this cluster's secret, or we did not."""


class WrongCluster(UserError):
    """The data or the peer belongs to another cluster."""


class NewerFormat(UserError):
    """The data was written by a newer version, which this one must not touch."""


class UnknownRequest(UserError):
    """The server has no handler for this request: another role, or another version."""


class HostUnreachable(Unavailable):
    """No connection to the address, or the connection ended before the answer."""


class CallTimedOut(HostUnreachable):
    """Connected, but no answer within the time that the caller gave."""


class Overloaded(Unavailable):
    """The server has as many connections or requests as it may hold; try again later."""


class DaemonFault(Unavailable):
    """The server hit a bug while it answered, and is stopping."""


class Speechless(Unavailable):
    """What answers at the address does not speak our protocol."""


class DiskFailed(Unavailable):
    """A write or an fsync failed; the process must not acknowledge anything more."""


class JournalCorrupt(Corrupt):
    """A record or checkpoint that was once acknowledged no longer reads back."""


def name_chain(error: ClusterError) -> list[str]:
    """Return the error's class names, most particular first, so that a peer that does not know
    the leaf still raises the right branch."""
    return [
        cls.__name__
        for cls in type(error).__mro__
        if issubclass(cls, ClusterError) and cls is not ClusterError
    ]


def from_wire(names: list[str], message: str, details: dict[str, Any]) -> ClusterError:
    """Rebuild an error from `name_chain`; an unknown leaf becomes its nearest known ancestor."""
    for name in names:
        cls = ClusterError._by_name.get(name)
        if cls is not None:
            return _rebuild(cls, message, details)
    return _rebuild(ClusterError, message, details)
