"""`dfs.client.hedge`: of several replicas that were asked, the first to send is read."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from mrstream.dfs.client.hedge import quickest


class Replica:
    """A server at the other end of a socket pair, which has sent something or nothing."""

    def __init__(self, name: str, *, sends: bool = False, has_bytes: bool = False) -> None:
        self.name = name
        self.is_ready = has_bytes
        self.patience_s = 0.01
        self.is_closed = False
        self._ours, self._theirs = socket.socketpair()
        if sends:
            self._theirs.send(b"x")

    def fileno(self) -> int:
        return self._ours.fileno()

    def close(self) -> None:
        self.is_closed = True


def none_is_asked() -> Iterator[Replica]:
    raise AssertionError("nobody else should be asked")
    yield


def test_a_replica_that_sends_is_read_alone() -> None:
    for first in (Replica("a", sends=True), Replica("a", has_bytes=True)):
        assert quickest(first, none_is_asked()) is first
        assert not first.is_closed


def test_others_are_asked_one_after_another_until_one_sends() -> None:
    """Fault gate 14: a slow disk or link is not waited for."""
    silent, also_silent, quick = Replica("a"), Replica("b"), Replica("c", sends=True)
    unasked = Replica("d", sends=True)
    others = iter([also_silent, quick, unasked])

    assert quickest(silent, others) is quick

    assert (silent.is_closed, also_silent.is_closed, quick.is_closed) == (True, True, False)
    assert list(others) == [unasked]


def test_a_replica_that_is_the_last_one_is_waited_for() -> None:
    only = Replica("a")

    assert quickest(only, iter(())) is only
    assert not only.is_closed
