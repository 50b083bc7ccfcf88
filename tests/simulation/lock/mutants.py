"""Cells and clients that are wrong on purpose: each breaks one rule, and must be found.

A mutant is a list of (class, name, wrong function); `test_lock_mutants.py` knows what finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mrstream.cluster.leader.gate import Gate
from mrstream.lock.cell import nodes
from mrstream.lock.cell import records as r
from mrstream.lock.cell.caching import Caching
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.changes import Changes
from mrstream.lock.cell.failover import Failover
from mrstream.lock.cell.handles import Handles
from mrstream.lock.cell.locks import Locks
from mrstream.lock.cell.repeats import Repeats
from mrstream.lock.cell.sessions import Sessions
from mrstream.lock.client.cache import Cache, Reading
from mrstream.lock.client.session import Session
from mrstream.lock.errors import HandleInvalid

Patch = tuple[type[Any], str, Callable[..., Any]]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _never(*_: Any, **__: Any) -> bool:
    return False


# --- locks


def _shares_with_a_writer(self: Locks, node: nodes.Node, is_shared: bool) -> bool:
    return (is_shared or not node.holders) and not self.is_delayed(node)


def _delay_written_off(self: Locks) -> None:
    for node in self._state.nodes.values():
        node.delay_s = 0.0


def _leaves_with_its_delay(self: Changes, node: nodes.Node, change: int) -> bool:
    from mrstream.lock.cell.caching import keys_of_coming_or_going

    return not node.holders and self._caching.prepare(change, keys_of_coming_or_going(node.path))


def _numbers_begin_again(self: nodes.State, record: r.NodeRemoved) -> None:
    _REMOVE(self, record)
    self.floor = 0


_REMOVE = nodes.State._remove


def _delay_of_half(self: Locks, node: nodes.Node) -> None:
    if node.delay_s > 0.0:
        self._delay_until_s[node.path] = self._outbox.now_s + node.delay_s / 2


def _ends_session_without_its_locks(self: Cell, live: Any, error: Any, failed: bool) -> None:
    for path in list(self.state.held.get(live.id, ())):
        for holder in list(self.state.nodes[path].holders):
            if holder.session == live.id:
                self._outbox.emit(r.LockFreed(path, live.id, holder.handle))
    _END(self, live, error, failed)


_END = Cell._end


# --- sessions


def _restores_no_lease(self: Sessions) -> None:
    _RESTORE(self)
    for live in self.live.values():
        live.lease_end_s = self._outbox.now_s


_RESTORE = Sessions.restore


def _forgets_the_rate(self: Sessions, live: Any, from_s: float, lease_s: float) -> None:
    live.lease_end_s = max(live.lease_end_s, from_s + lease_s * 0.97)


def _extends_always(self: Sessions, live: Any, called: Any, ask: Any) -> None:
    _KEEP_ALIVE(self, live, called, ask)
    live.may_extend = True


_KEEP_ALIVE = Sessions.keep_alive


def _shortens_at_once(self: Sessions) -> None:
    self._long_until_s = 0.0
    _CHOOSE_LEASE(self)


_CHOOSE_LEASE = Sessions.choose_lease


# --- caching


def _changes_without_asking(self: Caching, change: int, keys: tuple[str, ...]) -> bool:
    _PREPARE(self, change, keys)
    return True


_PREPARE = Caching.prepare


def _caches_during_a_change(self: Caching, live: Any, key: str) -> bool:
    changing, self._changing = self._changing, {}
    try:
        return _ALLOW(self, live, key)
    finally:
        self._changing = changing


_ALLOW = Caching.allow


def _forgets_who_reads(self: Caching, live: Any, key: str) -> bool:
    return key not in self._changing


def _caches_what_is_invalidated(self: Caching, live: Any, key: str) -> bool:
    if key in self._changing:
        return False
    self._keys_of.setdefault(live.id, {})[key] = None
    self._cachers.setdefault(key, {}).setdefault(live.id, 0)
    return True


# --- fail-over


def _waits_for_nobody(self: Failover) -> None:
    self.step_7_let_everything_in()


def _any_epoch(self: Failover, epoch: int, is_keep_alive: bool) -> None:
    _CHECK(self, self.epoch, is_keep_alive)


_CHECK = Failover.check


# --- handles and repeats


def _any_instance(self: Handles, live: Any, handle: Any) -> Any:
    known = self.find(live, handle)
    node = self._state.nodes.get(handle.path)
    if node is None:
        raise HandleInvalid("gone")
    return known, node


# --- the client


def _lease_from_receipt(
    self: Session, asked: Any, kept: Any, sent_at_s: float, now_s: float
) -> Any:
    return _KEPT(self, asked, kept, now_s, now_s)


_KEPT = Session.kept


def _keeps_late_reads(self: Cache, reading: Reading, value: Any = None, size: int = 0) -> None:
    reading.is_void = False
    _CACHE_END(self, reading, value, size)


_CACHE_END = Cache.end


def _stays_on(self: Cache, is_on: bool) -> None:
    self.is_on = True


def _hears_old_leaders(self: Session, asked: Any, kept: Any, sent_at_s: float, now_s: float) -> Any:
    import msgspec

    again = msgspec.structs.replace(asked, epoch=self.epoch)
    return _KEPT(self, again, kept, sent_at_s, now_s)


# --- the shell


def _hasty(self: Gate[Any], commands: list[Any]) -> None:
    for command in commands:
        self._carry_out(command)


MUTANTS: dict[str, list[Patch]] = {
    "a reader shares with a writer": [(Locks, "_may_take", _shares_with_a_writer)],
    "no delay after a failure": [(Locks, "is_delayed", _never)],
    "half of the delay": [(Locks, "_begin_delay", _delay_of_half)],
    "a new leader writes delays off": [(Locks, "restore", _delay_written_off)],
    "an ephemeral lock leaves with its delay": [(Changes, "_may_leave", _leaves_with_its_delay)],
    "numbers begin again with a new instance": [(nodes.State, "_remove", _numbers_begin_again)],
    "locks are freed before their session ends": [
        (Cell, "_end", _ends_session_without_its_locks),
    ],
    "a new leader restores no lease": [(Sessions, "restore", _restores_no_lease)],
    "the leader's clock may run fast": [(Sessions, "_extend", _forgets_the_rate)],
    "the leader blames clients for its own silence": [(Sessions, "forgive", _nothing)],
    "a session is kept without acknowledging": [(Sessions, "keep_alive", _extends_always)],
    "a short lease is logged at once": [(Sessions, "choose_lease", _shortens_at_once)],
    "the next invalidation is taken for acknowledged": [
        (Caching, "allow", _caches_what_is_invalidated),
    ],
    "a change waits for no cache": [(Caching, "prepare", _changes_without_asking)],
    "what is changing is cached": [(Caching, "allow", _caches_during_a_change)],
    "who caches is forgotten": [(Caching, "allow", _forgets_who_reads)],
    "the new leader waits for nobody": [
        (Failover, "step_6_wait_until_all_know", _waits_for_nobody),
    ],
    "the new leader tells nobody": [(Failover, "step_5_tell_every_session", _nothing)],
    "calls of any epoch are taken": [(Failover, "check", _any_epoch)],
    "a handle means any instance": [(Handles, "node_of", _any_instance)],
    "a repeat is done again": [(Repeats, "is_answered", _never)],
    "the client counts its lease from the answer": [(Session, "kept", _lease_from_receipt)],
    "the client keeps what was invalidated on its way": [(Cache, "end", _keeps_late_reads)],
    "the client keeps its cache over a fail-over": [(Cache, "empty", _nothing)],
    "the client keeps its cache in jeopardy": [(Cache, "switch", _stays_on)],
    "the client does not invalidate": [(Cache, "invalidate", _nothing)],
    "the client hears leaders of before": [(Session, "kept", _hears_old_leaders)],
    "answers before the log is durable": [(Gate, "say", _hasty)],
}


@contextmanager
def put_in(name: str) -> Iterator[None]:
    """Have the mutant in the place of what is right."""
    patches = MUTANTS[name]
    right = [(kind, attribute, getattr(kind, attribute)) for kind, attribute, _ in patches]
    try:
        for kind, attribute, wrong in patches:
            setattr(kind, attribute, wrong)
        yield
    finally:
        for kind, attribute, function in right:
            setattr(kind, attribute, function)
