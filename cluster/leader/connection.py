"""A blocking client of whoever leads: the face of `Connection`, over all members of a group.

A call goes to the believed leader and on to where that one points. It keeps its number wherever it
goes, and the client its id: a successor that finds the request in its log answers it from there. A
leader that is silent for `LOOK_S` is asked whether it lives, and if not, the others who leads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mrstream.cluster.closing import Closing
from mrstream.cluster.config.config import Cluster
from mrstream.cluster.consensus.standing import NotLeader, Standing, WhoLeads
from mrstream.cluster.errors import CallTimedOut, ClusterError, HostUnreachable
from mrstream.cluster.leader.finding import Finding, Superseded, superseded
from mrstream.cluster.leader.hint import Hint, read_hint, write_hint
from mrstream.cluster.wire.identity import PeerIdentity, new_client_id
from mrstream.cluster.wire.messages import Message, Request
from mrstream.cluster.wire.network import Connection, Identity

CALL_S_MAX = 30.0
LOOK_S = 3.0
ASK_S_MAX = 1.0
OTHERS_S_MAX = 3.0
"""The one that does not answer may be cut off; on the others, which may be slow, all depends."""
CONNECT_S_MAX = 2.0


class LeaderMoved(HostUnreachable):
    """The one that was asked does not lead any more: what it was asked may be done or not."""


class _Waiting:
    """One call that waits for an answer, and what was found out meanwhile."""

    def __init__(self, asked: str, not_before_s: float) -> None:
        self.asked = asked
        """The address that the call went to. The call ends there, or is taken back from there
        before it goes elsewhere."""
        self.not_before_s = not_before_s
        """Until then silence is no reason to look."""
        self.is_alive: bool | None = None
        """Did the one that was asked answer another question when it was last looked at? None: it
        never was."""


class LeaderConnection(Closing):
    """`call` has a request answered by the leader; safe to use from many threads."""

    def __init__(
        self,
        finding: Finding,
        identity: Identity,
        *,
        role: str = "",
        on_push: Callable[[Any], None] | None = None,
        push_types: Sequence[type[Message]] = (),
        connect_s_max: float = CONNECT_S_MAX,
        on_leader: Callable[[str, int], None] | None = None,
    ) -> None:
        """`on_leader` is told host and epoch whenever another one leads, or anew."""
        self.finding = finding
        """Who leads, and the highest epoch; may be shared with other connections."""
        self._identity, self._role = identity, role
        self._on_push, self._push_types = on_push, push_types
        self._connect_s_max = connect_s_max
        self._on_leader = on_leader
        self._fresh()

    def _fresh(self) -> None:
        self._lock = threading.Lock()
        """Guards the connections and the two counts, for moments."""
        self._pid = os.getpid()
        """Whose all this is: a child that was forked off begins with nothing."""
        self.client_id = new_client_id()
        """The same at every member: by it and a request's number a successor knows a repeat."""
        self._connections: dict[str, Connection] = {}
        """One to each address that was ever asked. None goes: one that ended connects again."""
        self._number = 0
        """Of the last request, at whichever member: no two have the same. It never goes back."""
        self._closings = 0
        """How often `close` was called: a call of before that is ended by it is not repeated."""

    @property
    def address(self) -> str:
        """Where the leader is, as far as is known."""
        return self.finding.address

    def next_number(self) -> int:
        """Return a request number to give to `call`, for a request that may have to be repeated."""
        self._check_fork()
        with self._lock:
            self._number += 1
            return self._number

    def call(
        self,
        request: Request,
        timeout_s: float = CALL_S_MAX,
        number: int | None = None,
        patience_s: float = LOOK_S,
        look_s: float = LOOK_S,
        on_lost: Callable[[HostUnreachable], None] | None = None,
    ) -> Any:
        """Return the leader's reply, or raise what it raised, or `Unavailable` when no member leads
        at the moment: wait then, and repeat it with its number. `patience_s`: an answer that is
        held back for so long is no reason to ask anybody; `look_s`: how often to look then;
        `on_lost` hears of each member that cannot be reached, when another is asked instead."""
        if number is None:
            number = self.next_number()
        renewed: dict[str, None] = {}
        closings = self._closings
        while True:
            address = self.finding.address
            waiting = _Waiting(address, time.monotonic() + patience_s)
            connection = self._connection(address)
            if connection.is_open and not self.finding.accepts(connection.peer.epoch):
                connection.close()  # it began under an earlier lead: whoever is there says anew
            was_open = connection.is_open
            try:
                look = partial(self._look_round, waiting)
                answer = connection.call(request, timeout_s, number, look, look_s)
            except NotLeader as error:
                if not self.finding.refused(address, error):
                    raise
            except LeaderMoved:
                # What is on its way there must not arrive later, should that member lead again: if
                # another refuses it, nobody remembers, and it would be carried out (F5).
                connection.abort()
                continue
            except CallTimedOut:
                if waiting.is_alive is False:
                    connection.abort()  # a host that is cut off ends none: this one may be dead
                if not waiting.is_alive:
                    self.finding.lost(address)
                raise
            except HostUnreachable as error:
                # A connection of before may have ended unnoticed, with an earlier life of the
                # member: only a new one that fails says that nobody is there.
                if closings != self._closings:
                    raise
                if was_open and address not in renewed:
                    renewed[address] = None
                elif not self.finding.lost(address):
                    raise
                elif on_lost is not None:
                    on_lost(error)
            except ClusterError:
                self._answered(address)
                raise
            else:
                self._answered(address)
                return answer

    def _answered(self, address: str) -> None:
        if self.finding.answered(address) and self._on_leader is not None:
            self._on_leader(self.finding.host, self.finding.epoch)

    def listen(self, timeout_s: float) -> None:
        """Take what the leader pushes for so long, without a call of our own."""
        self._connection(self.finding.address).listen(timeout_s)

    def ask_member(self, address: str, request: Request, timeout_s: float) -> Any:
        """Have one member answer, whether it leads or not."""
        number = self.next_number()
        return self._connection(address).call(request, timeout_s, number)

    def close(self) -> None:
        """End all connections, and calls in flight; it may be used again."""
        with self._lock:
            self._closings += 1
            connections = list(self._connections.values())
        for connection in connections:
            connection.close()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            self._fresh()

    def _connection(self, address: str) -> Connection:
        self._check_fork()
        with self._lock:
            found = self._connections.get(address)
            if found is None:
                found = self._connections[address] = self._new(address)
            assert found.client_id == self.client_id, f"{address}: asked as somebody else"
            return found

    def _new(self, address: str) -> Connection:
        return Connection(
            address,
            self._identity,
            role=self._role,
            client_id=self.client_id,
            on_push=self._on_push,
            push_types=self._push_types,
            connect_s_max=self._connect_s_max,
            on_peer=partial(self._meet, address),
        )

    def _meet(self, address: str, peer: PeerIdentity) -> None:
        if not self.finding.accepts(peer.epoch):
            raise Superseded(superseded(address, peer.epoch, self.finding.epoch))

    def _look_round(self, waiting: _Waiting) -> None:
        """Go on waiting where the one that was asked lives and leads; else raise."""
        asked = waiting.asked
        if self.finding.address != asked:
            raise LeaderMoved(f"{asked} does not lead any more: another call has found out")
        if time.monotonic() < waiting.not_before_s:
            return
        waiting.is_alive = False
        for connection in (
            self._connection(asked),
            *(self._new(address) for address in self.finding.others(asked)),
        ):
            is_asked = connection.address == asked
            limit_s = ASK_S_MAX if is_asked else OTHERS_S_MAX
            try:
                seen: Standing = connection.call(WhoLeads(), limit_s, self.next_number())
            except ClusterError:
                continue  # one more that says nothing
            finally:
                if not is_asked:
                    connection.close()
            if is_asked:
                waiting.is_alive = True
                if seen.is_serving:
                    return
            if self.finding.heard(seen, asked):
                raise LeaderMoved(f"{asked} does not lead any more: {seen.leader} does")


def connect_to_leader(
    cluster: Cluster, role: str, finding: Finding | None = None, **options: Any
) -> LeaderConnection:
    """Return a connection to the leader of a master's role, wherever that is; connections that
    share a finding learn from each other."""
    if finding is None:
        finding = find_leader(cluster, role)
    return LeaderConnection(
        finding,
        cluster.identity(),
        role=role,
        on_leader=partial(keep_leader, cluster, role),
        **options,
    )


def find_leader(cluster: Cluster, role: str) -> Finding:
    """Return what is known of who leads: the members of cluster.yaml, and what was kept."""
    seeds = cluster.config.master_addresses(role)
    if len(seeds) == 1:
        return Finding(seeds)
    hint = read_hint(cluster.config.name, role, cluster.secret.cluster_id)
    return Finding(seeds, hint.host, hint.epoch)


def keep_leader(cluster: Cluster, role: str, host: str, epoch: int) -> None:
    """Remember for the next process who leads; of a lone master there is nothing to remember."""
    config = cluster.config
    if len(config.masters_of(role)) > 1:
        write_hint(config.name, role, Hint(host, epoch), cluster.secret.cluster_id)
