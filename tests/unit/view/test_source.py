"""Where the masters are, as a source that lives long knows it (view/source.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.cluster.config import state
from mrstream.cluster.config.config import Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.standing import Standing
from mrstream.cluster.leader.group_view import GroupView, view_of
from mrstream.cluster.leader.group_watch import GroupWatch
from mrstream.view.source import ClusterSource
from tests.support.ports import free_ports


@pytest.mark.parametrize("heir", ["h3", "h4"])
def test_a_master_that_came_in_later_is_looked_for_in_the_cluster_file_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heir: str
) -> None:
    """Else a monitor that was open while a master was replaced would ask the wrong hosts for ever,
    and call one silent that nobody misses."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path))
    base = free_ports(1)[0]

    def text(third: str) -> str:
        hosts = ", ".join(f"h{n}: {{address: 127.0.0.{n}, via: local}}" for n in (1, 2, 3, 4))
        return f"name: t\nports: {{base: {base}}}\nmasters: [h1, h2, {third}]\nhosts: {{{hosts}}}\n"

    state.write_private(state.cluster_file("t"), text(heir))
    members = tuple(MemberId(f"{host}/j") for host in ("h1", "h2", heir))

    def look(cluster: Cluster, role: str) -> GroupView:
        asked = cluster.config.masters_of(role)
        leads = Standing(members[0], members[0], 7, 5, 5, members, is_serving=True)
        return view_of(role, {host: leads if host == "h1" else "no answer" for host in asked})

    source = ClusterSource(Cluster(read_config(text("h3")), state.Secret.new()))
    before = source._groups = GroupWatch(source._cluster, look)
    source.groups(60.0)
    source.close()

    assert (source._groups is before) == (heir == "h3")
    assert source._cluster.config.masters == ("h1", "h2", heir)
