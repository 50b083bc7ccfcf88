"""What must hold within one replica after every event; C1 to C8 over all of them: the simulator."""

from __future__ import annotations

from itertools import pairwise

from mrstream.cluster.consensus.leading import Leading
from mrstream.cluster.consensus.state import Role, State


def check(state: State, leading: Leading | None) -> None:
    """Raise `AssertionError` at the first that does not."""
    epochs, rows = state.epochs, state.epochs.rows
    assert epochs.base <= state.committed <= epochs.last, "C2: committed lies in the log"
    assert state.synced <= epochs.last, "C3: what is synced is in the log"
    assert state.verified <= epochs.last, "C2: what is verified is in the log"
    assert epochs.last_epoch <= state.epoch, "C1: no record is of a later epoch than ours"
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(rows)), "C2: epochs rise"
    assert not rows or rows[0][1] > epochs.base_epoch, "C2: epochs rise"
    uncommitted = [at for at, _ in state.members.rows if at > state.committed]
    assert state.members.set_at <= epochs.last, "C6: the list in force is in the log"
    assert (leading is not None) == (state.role is Role.LEADING)
    if leading is not None:
        own = [at for at in uncommitted if at >= leading.began_at]
        assert len(own) <= 1 or state.committed < leading.began_at, "C6: one change at a time"
        first = max(leading.began_at, epochs.base)
        assert epochs.at(first) == state.epoch, "C1: our first record is of our epoch"
        for member, progress in leading.progress.items():
            assert progress.synced <= epochs.last, f"C3: {member} has what we have not"
            assert progress.synced < progress.next <= epochs.last + 1
