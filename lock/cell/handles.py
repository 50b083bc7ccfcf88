"""Handles: open nodes, made, proven, made again after a fail-over, closed (Chubby §2.6, §2.9).

L6: a handle means one instance of a node; where that was deleted, every later call on it fails,
whatever has its name now. A handle of an earlier leader is honoured if its check digits are right,
and never again in this epoch once it was closed.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from mrstream.cluster.wire.messages import pack
from mrstream.lock.cell.nodes import HandleKey, Node, State
from mrstream.lock.cell.sessions import Live, OpenHandle, Sessions
from mrstream.lock.cell.settings import Settings
from mrstream.lock.errors import HandleInvalid, LimitReached
from mrstream.lock.protocol import Handle

CHECK_BYTES = 12


class Handles:
    def __init__(self, state: State, settings: Settings, sessions: Sessions, secret: bytes) -> None:
        self._state = state
        self._settings = settings
        self._sessions = sessions
        self._secret = secret
        self.epoch = 0
        self.of_instance: dict[int, dict[tuple[int, HandleKey], OpenHandle]] = {}

    def make(
        self, live: Live, node: Node, *, mode: int, events: int, lock_delay_s: float
    ) -> Handle:
        """Open a node for a session."""
        if len(live.handles) >= self._settings.handles_max:
            raise LimitReached(
                f"session {live.id} has {len(live.handles):,} open handles, the most that it may; "
                "close some"
            )
        number, live.next_handle = live.next_handle, live.next_handle + 1
        bare = Handle(
            live.id, self.epoch, number, node.path, node.instance, mode, events, lock_delay_s
        )
        handle = msgspec.structs.replace(bare, check=self._digits(bare))
        self._note(live, OpenHandle(handle))
        return handle

    def find(self, live: Live, handle: Handle) -> OpenHandle:
        """Return the open handle, made again if an earlier leader made it (§2.9 step 8)."""
        key = handle.epoch, handle.number
        known = live.handles.get(key)
        if known is not None and known.handle == handle:
            return known
        if known is None and key not in live.closed and self._is_of_earlier_leader(live, handle):
            known = OpenHandle(handle)
            self._note(live, known)
            return known
        raise HandleInvalid(f"the handle {key} of {handle.path} is closed, or was never given")

    def node_of(self, live: Live, handle: Handle) -> tuple[OpenHandle, Node]:
        """Return the handle and its node, or raise `HandleInvalid`."""
        known = self.find(live, handle)
        if known.is_poisoned:
            raise HandleInvalid(f"the handle of {handle.path} was poisoned")
        node = self._state.nodes.get(handle.path)
        if node is None or node.instance != handle.instance:
            raise HandleInvalid(f"{handle.path} was deleted since it was opened")
        return known, node

    def close(self, live: Live, known: OpenHandle) -> None:
        """Forget a handle; one of an earlier leader is never made again in this epoch."""
        del live.handles[known.key]
        if known.handle.epoch != self.epoch:
            live.closed[known.key] = None
        others = self.of_instance[known.handle.instance]
        del others[(live.id, known.key)]
        if not others:
            del self.of_instance[known.handle.instance]

    def open_count(self, node: Node) -> int:
        return len(self.of_instance.get(node.instance, ()))

    def tell(self, node: Node, kind: int, about: str = "") -> None:
        """Tell everybody who has the node open and asked for this kind of event."""
        for (session, key), known in self.of_instance.get(node.instance, {}).items():
            if known.handle.events & kind:
                self._sessions.tell(self._sessions.live[session], kind, about or node.path, key)

    def tell_holders(self, node: Node, kind: int) -> None:
        """As `tell`, only those that hold the lock."""
        for holder in node.holders:
            known = self.of_instance.get(node.instance, {}).get((holder.session, holder.handle))
            if known is not None and known.handle.events & kind:
                live = self._sessions.live[holder.session]
                self._sessions.tell(live, kind, node.path, holder.handle)

    def _note(self, live: Live, known: OpenHandle) -> None:
        live.handles[known.key] = known
        instance = known.handle.instance
        self.of_instance.setdefault(instance, {})[(live.id, known.key)] = known

    def _is_of_earlier_leader(self, live: Live, handle: Handle) -> bool:
        bare = msgspec.structs.replace(handle, check=b"")
        is_ours = handle.session == live.id and handle.epoch < self.epoch
        return is_ours and hmac.compare_digest(handle.check, self._digits(bare))

    def _digits(self, bare: Handle) -> bytes:
        """What nobody without the cluster's secret can make up (CH-14)."""
        return hmac.digest(self._secret, pack(bare), hashlib.sha256)[:CHECK_BYTES]
