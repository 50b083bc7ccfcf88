"""What must hold in a cell after every event (L1 to L7 of docs/decisions/20-the-lock-cell.md).

L3, L4 and L5 are about time and about clients: the simulator checks them where both are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrstream.lock.cell.nodes import State
from mrstream.lock.paths import ROOT, name_of, parent_of

if TYPE_CHECKING:
    from mrstream.lock.cell.cell import Cell


def check(cell: Cell) -> None:
    """Assert all of it."""
    check_state(cell.state)
    if cell.failover.step >= 3:
        check_leader(cell)


def check_state(state: State) -> None:
    """What the log alone says."""
    held: dict[int, dict[str, None]] = {}
    for path, node in state.nodes.items():
        assert len(node.holders) <= 1 or node.is_shared, f"L1: {path} has two holders"
        if path != ROOT:
            assert name_of(path) in state.nodes[parent_of(path)].children, f"{path} is nowhere"
        keys = [(holder.session, holder.handle) for holder in node.holders]
        assert len(keys) == len(set(keys)), f"L1: {path} is held twice by one handle"
        for holder in node.holders:
            assert holder.session in state.sessions, f"L1: {path} is held by a session that is over"
            assert node.lock_generation > 0, f"L2: {path} is held in generation 0"
            held.setdefault(holder.session, {})[path] = None
    there = {session: paths for session, paths in state.held.items() if paths}
    assert {s: set(p) for s, p in there.items()} == {s: set(p) for s, p in held.items()}
    names = sum(len(node.children) for node in state.nodes.values())
    assert names == len(state.nodes) - 1, "a directory names a node that is not there"
    total = sum(len(node.contents) for node in state.nodes.values())
    assert total == state.contents_bytes, "bytes are counted wrongly"


def check_leader(cell: Cell) -> None:
    """What a leader keeps besides."""
    assert list(cell.sessions.live) == list(cell.state.sessions), "sessions of the log and ours"
    count = 0
    for live in cell.sessions:
        for key, known in live.handles.items():
            count += 1
            assert key not in live.closed, f"L6: {key} was closed in this epoch and is open"
            assert cell.handles.of_instance[known.handle.instance][(live.id, key)] is known
    assert count == sum(len(known) for known in cell.handles.of_instance.values())
    for node in cell.state.nodes.values():
        assert not (node.holders and not node.is_shared and node.delay_s), (
            f"L3: {node.path} is held though its delay is not over"
        )
