"""The nine steps of a new leader, in the paper's order (Chubby §2.9); one function each.

1 a new epoch · 2 only "who leads?" is answered · 3 sessions and locks from the log, each session
with the longest lease that it may have · 4 KeepAlives only · 5 every session is told · 6 until each
has acknowledged that, or is over · 7 everything · 8 handles of earlier leaders are made again when
they are used · 9 after a minute, ephemeral nodes that nobody came for are removed.

Clients that are told have emptied their caches: only then may a change go on that they would not
have been told of (L4).
"""

from __future__ import annotations

from mrstream.lock.cell.changes import Changes
from mrstream.lock.cell.handles import Handles
from mrstream.lock.cell.locks import Locks
from mrstream.lock.cell.nodes import Node, State
from mrstream.lock.cell.outbox import Outbox
from mrstream.lock.cell.sessions import Live, OpenHandle, Sessions
from mrstream.lock.cell.settings import Settings
from mrstream.lock.errors import CellFailingOver, WrongEpoch
from mrstream.lock.protocol import FAILED_OVER, Handle

STEPS_DONE = 9


class Failover:
    """How far this leader is."""

    def __init__(
        self, state: State, settings: Settings, outbox: Outbox, sessions: Sessions,
        handles: Handles, locks: Locks, changes: Changes,
    ) -> None:  # fmt: skip
        self._state = state
        self._settings = settings
        self._outbox = outbox
        self._sessions = sessions
        self._handles = handles
        self._locks = locks
        self._changes = changes
        self.epoch = 0
        self.step = 0
        """The last step that has begun; 0: not a leader."""
        self._untold: dict[int, int] = {}
        """Sessions that have not acknowledged the fail-over, to the number of that event."""
        self._orphans_at_s = 0.0

    def begin(self, epoch: int) -> None:
        """Take the steps that need nobody else."""
        self.step_1_pick_a_new_epoch(epoch)
        self.step_2_answer_only_who_leads()
        self.step_3_restore_sessions_and_locks()
        self.step_4_let_keep_alives_in()
        self.step_5_tell_every_session()
        self.step_6_wait_until_all_know()

    def step_1_pick_a_new_epoch(self, epoch: int) -> None:
        """Every call has to carry it: those made for an earlier leader are refused."""
        assert epoch > self.epoch, f"epoch {epoch} comes after {self.epoch}"
        self.step, self.epoch = 1, epoch
        self._handles.epoch = epoch

    def step_2_answer_only_who_leads(self) -> None:
        """Nothing of a session is touched before the sessions are known."""
        self.step = 2

    def step_3_restore_sessions_and_locks(self) -> None:
        """As the log has them; leases and delays as if the last leader had just given them."""
        self.step = 3
        self._sessions.restore()
        self._locks.restore()

    def step_4_let_keep_alives_in(self) -> None:
        """Sessions can be kept alive from here on, and nothing else."""
        self.step = 4

    def step_5_tell_every_session(self) -> None:
        """Caches are emptied, since invalidations may have been missed; applications are warned
        that events may have been."""
        self.step = 5
        for live in self._sessions:
            self._untold[live.id] = self._sessions.tell(live, FAILED_OVER)

    def step_6_wait_until_all_know(self) -> None:
        """Until each session has acknowledged it, or is over; then go on by itself."""
        self.step = 6
        for session, number in list(self._untold.items()):
            live = self._sessions.live.get(session)
            if live is None or live.acked >= number:
                del self._untold[session]
        if not self._untold:
            self.step_7_let_everything_in()

    def step_7_let_everything_in(self) -> None:
        """From here on this is a leader like any other."""
        self.step = 7
        self._orphans_at_s = self._outbox.now_s + self._settings.orphan_s

    def step_8_make_a_handle_again(self, live: Live, handle: Handle) -> tuple[OpenHandle, Node]:
        """Whoever uses a handle of an earlier leader finds it as it was."""
        return self._handles.node_of(live, handle)

    def step_9_remove_orphans(self) -> None:
        """Ephemeral nodes for which nobody came in a minute had only handles of dead clients."""
        self.step = STEPS_DONE
        for node in list(self._state.nodes.values()):
            self._changes.nobody_has(node)

    # --- for the door

    def go_on(self) -> None:
        """Something was acknowledged, a session ended, or time has passed."""
        if self.step == 6:
            self.step_6_wait_until_all_know()
        if self.step == 7 and self._outbox.now_s >= self._orphans_at_s:
            self.step_9_remove_orphans()

    def check(self, epoch: int, is_keep_alive: bool) -> None:
        """Raise why a call of a session may not come in now."""
        if epoch != self.epoch:
            raise WrongEpoch(f"the leader's epoch is {self.epoch}, not {epoch}", epoch=self.epoch)
        least, why = (4, "its sessions") if is_keep_alive else (7, "its clients to know")
        if self.step < least:
            raise CellFailingOver(f"the cell has a new leader, which waits for {why}; try again")
