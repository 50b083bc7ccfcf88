"""A lock cell of three hosts, each with its own network, whose leader dies, hangs, is cut off."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.conftest import MakeHosts
from tests.cluster.lock_rounds import FAULTS, play
from tests.cluster.promise import check_in_time


def test_another_leads_and_no_lock_and_no_acknowledged_put_is_lost(
    make_netns: MakeHosts, tmp_path: Path
) -> None:
    """CH-01, CH-22, CH-37 to CH-39, A27: kill -9, SIGSTOP, a pulled cable; one of each."""
    took_s = play(make_netns(3), tmp_path / "cell", list(FAULTS))

    assert sorted(took_s) == sorted(FAULTS)
    for fault, times in took_s.items():
        check_in_time(fault, max(times))
