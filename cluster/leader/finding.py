"""Who leads a group, as a client knows it: which member to ask next, and when to give up.

    believed leader ── NotLeader with a name ──▸ that one; five times, then the caller waits
          │  ├─────── NotLeader, its own name ─▸ itself: it is about to lead; the caller waits
          │  └─────── NotLeader without ───────▸ the next member; each once, then the caller waits
          └── no connection, no answer ────────▸ the next member; each once, then the caller waits

What is heard of an epoch below the highest that was ever heard of counts for nothing, nor does
hearsay of a member that was just asked in vain; what that member says of itself does. No name
service, no address that moves, and nothing to ask but the members themselves. Pure: never does any
IO; `connection` and `channel` are its two faces.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from mrstream.cluster.consensus.members import host_of
from mrstream.cluster.consensus.standing import NotLeader, Standing
from mrstream.cluster.errors import ClusterError, HostUnreachable
from mrstream.cluster.wire.addresses import split_address

HOPS_MAX = 5


class Superseded(HostUnreachable):
    """A master that leads an epoch below one that was heard of: nobody listens to it."""


def superseded(address: str, epoch: int, heard: int) -> str:
    return (
        f"{address} leads epoch {epoch}, and epoch {heard} was heard of: it is an old master, and "
        "is not asked (if its group was founded anew, delete leaders.json in "
        "~/.mrstream/clusters/NAME)"
    )


class Finding:
    """What one process knows of one group; its threads may share it."""

    def __init__(self, seeds: Mapping[str, str], first: str = "", epoch: int = 0) -> None:
        """`seeds`: the members' addresses by host, in the order in which they are asked; `first` is
        the host that led when somebody last looked, and `epoch` the highest heard of then."""
        assert seeds, "a group has members"
        self._addresses = dict(seeds)
        """Members by host, in the order in which they are asked: the seeds, then whoever was named
        as the leader since. None goes, and none moves."""
        self._lock = threading.Lock()
        """Guards all of this; never held while anybody is asked."""
        self.host = first if first in seeds else next(iter(seeds))
        """Whom to ask: always a member. Moved only by news of the one that was asked last, so that
        a thread whose news is old undoes nothing."""
        self._tried: dict[str, None] = {}
        """Members that were asked in vain since the caller last waited. Never all of them: then the
        caller waits, and it is empty again."""
        self._hops = 0
        """How often the caller was sent on since it last waited; at most `HOPS_MAX`."""
        self.epoch = epoch
        """The highest that was heard of; it never falls, or reads could go back in time."""
        self._told = ("", 0)
        """The leader and epoch that `answered` was news of: each is told once."""

    @property
    def address(self) -> str:
        """Where to ask now."""
        with self._lock:
            return self._addresses[self.host]

    def others(self, asked: str) -> list[str]:
        """The addresses of all members but that one."""
        with self._lock:
            return [address for address in self._addresses.values() if address != asked]

    def members(self) -> list[tuple[str, str]]:
        """Every member that is known: host and address."""
        with self._lock:
            return list(self._addresses.items())

    # --- what came of asking

    def accepts(self, epoch: int) -> bool:
        """A member of a group says that it leads this epoch (0: it does not lead). Return whether
        it may: not if a later one was ever heard of, or reads could go back in time."""
        with self._lock:
            if 0 < epoch < self.epoch and len(self._addresses) > 1:
                return False
            self.epoch = max(self.epoch, epoch)
            return True

    def answered(self, asked: str) -> bool:
        """The member at that address answers as the leader; say whether that is news."""
        with self._lock:
            self._rest()
            self.host = self._host_at(asked)
            told, self._told = self._told, (self.host, self.epoch)
            return told != self._told

    def refused(self, asked: str, error: NotLeader) -> bool:
        """It does not lead. Return whether to ask again at once, at `address`."""
        details = error.details
        host, address, epoch = details.get("leader"), details.get("address"), details.get("epoch")
        with self._lock:
            if self._addresses[self.host] != asked:
                return self._hop()  # somebody else has turned meanwhile
            if host == self.host:
                self._rest()
                return False
            place = address if isinstance(address, str) else ""
            is_known = isinstance(host, str) and isinstance(epoch, int)
            if is_known and self._believe(str(host), place, int(epoch or 0)):
                return self._hop()
            return self._turn()

    def lost(self, asked: str) -> bool:
        """Nobody answers there. Return whether to ask again at once, at `address`."""
        with self._lock:
            return self._hop() if self._addresses[self.host] != asked else self._turn()

    def heard(self, standing: Standing, asked: str) -> bool:
        """A member said who leads, while we wait for an answer of the one that was `asked`. Return
        whether the leader is another one now."""
        with self._lock:
            if not standing.leader or self._host_at(asked) == host_of(standing.leader):
                return False
            if standing.is_serving:
                # First hand: it may have been asked in vain just before it began to serve.
                self._tried.pop(host_of(standing.leader), None)
            return self._believe(host_of(standing.leader), standing.address, standing.epoch)

    def check_invariants(self) -> None:
        """Assert the law of each field; holds between calls."""
        with self._lock:
            assert self.host in self._addresses, self.host
            assert set(self._tried) < set(self._addresses), self._tried
            assert 0 <= self._hops <= HOPS_MAX, self._hops
            assert self._told[1] <= self.epoch, (self._told, self.epoch)

    # --- inside

    def _host_at(self, address: str) -> str:
        for host, known in self._addresses.items():
            if known == address:
                return host
        return self.host

    def _believe(self, host: str, address: str, epoch: int) -> bool:
        """Take a name for the leader's, unless it is old news, or nobody knows where that is."""
        if epoch < self.epoch or not host:
            return False
        if host not in self._addresses and not _is_address(address):
            return False
        if host in self._tried and epoch == self.epoch:
            return False  # its followers do not know yet that nobody is there
        self.epoch = epoch
        self._addresses.setdefault(host, address)
        self.host = host
        return True

    def _turn(self) -> bool:
        """Try the next member; each once, then the caller waits."""
        self._tried[self.host] = None
        hosts = list(self._addresses)
        at = hosts.index(self.host)
        self.host = hosts[(at + 1) % len(hosts)]
        if all(host in self._tried for host in hosts):
            self._rest()
            return False
        return self._hop()

    def _hop(self) -> bool:
        self._hops += 1
        if self._hops > HOPS_MAX:
            self._rest()
            return False
        return True

    def _rest(self) -> None:
        """The caller waits: whoever was asked in vain may be asked again after that."""
        self._tried.clear()
        self._hops = 0


def _is_address(text: str) -> bool:
    try:
        split_address(text)
    except (ClusterError, ValueError):
        return False
    return True
