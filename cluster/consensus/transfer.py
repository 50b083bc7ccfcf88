"""Handing the lead over in well under a lease (Raft's dissertation, §3.10).

The state machine falls silent (`Park`, `Parked`); when the successor has the whole log, the lease
is given up and the successor told so: its `Vote` carries the release, and electors forget what they
promised up to that moment of the leader's clock. It is done when we are `Deposed`. If nobody takes
over within `transfer_s_max` it is `Refused`, and the leader goes on, with a lease that counts only
what it sends from then on (C4).
"""

from __future__ import annotations

import math

from mrstream.cluster.consensus.commands import Park, Refused, SavePromise
from mrstream.cluster.consensus.leading import Leading
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.messages import Release, TransferNow
from mrstream.cluster.consensus.state import State


class Transferring:
    """One leader's wish to hand over; at most one at a time."""

    def __init__(self, state: State, leading: Leading) -> None:
        self._state = state
        self._leading = leading
        self._to: MemberId | None = None
        self._ask = 0
        self._until_s = math.inf
        self._is_parked = False
        self._is_released = False

    def begin(self, ask: int, to: MemberId, now_s: float) -> None:
        """Ask the state machine to fall silent."""
        state = self._state
        if self._to is not None:
            state.out.append(Refused(ask, f"the lead is being handed to {self._to} already"))
        elif to == state.me or to not in state.members.now.voters:
            state.out.append(Refused(ask, f"{to} is not another voter of this group"))
        elif not self._leading.is_near(to):
            state.out.append(Refused(ask, f"{to} does not answer, or has not caught up"))
        else:
            self._to, self._ask = to, ask
            self._until_s = now_s + state.timing.transfer_s_max
            state.out.append(Park(True))

    def parked(self, now_s: float) -> None:
        """The state machine is silent."""
        self._is_parked = self._to is not None
        self.go_on(now_s)

    def go_on(self, now_s: float) -> None:
        """Release the lease as soon as the successor has everything."""
        state = self._state
        if self._to is None or not self._is_parked or self._is_released:
            return
        progress = self._leading.progress.get(self._to)
        if progress is None or progress.synced < state.last or state.committed < state.last:
            return
        self._is_released = True
        self._leading.release(now_s)
        state.promised_until_s = now_s
        state.out.append(SavePromise(now_s))
        state.send(self._to, TransferNow(state.epoch, Release(state.epoch, now_s)))

    def tick(self, now_s: float) -> None:
        """Give it up when it takes too long."""
        if self._to is None or now_s < self._until_s:
            return
        self._state.out.append(Refused(self._ask, f"{self._to} did not take over in time"))
        self._to, self._until_s = None, math.inf
        self._is_parked = self._is_released = False
        self._leading.go_on(now_s)
        self._state.out.append(Park(False))

    def wake_at_s(self) -> float:
        return self._until_s
