"""What `doctor` and `up` say of hosts that are not well: each finding with what to do about it.

The hosts are told by hand; everything that judges what they say is real."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mrstream.cluster.config.config import Cluster, ClusterConfig
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.hosts import doctor
from mrstream.cluster.hosts.health import DEAD, DOWN, UP, RoleState
from mrstream.cluster.hosts.launcher import HostLink, Hosts
from mrstream.cluster.hosts.status import log_copy_lines
from mrstream.cluster.hosts.up import FREE_BYTES_LOW, Up
from mrstream.cluster.version import version
from mrstream.cluster.wire.messages import HealthReply

PLENTY = 100 * FREE_BYTES_LOW
CONFIG = """
name: lab
hosts:
  h1: {address: 192.0.2.1}
  h2: {address: 192.0.2.2}
  h3: {address: 192.0.2.3}
"""


class ToldHost(HostLink):
    """A host whose answers are given."""

    def __init__(self, config: ClusterConfig, name: str, **facts: Any) -> None:
        super().__init__(config, config.host(name))
        self.facts = {
            "directory": "/d", "running": {}, "guard": None, "wall_s": time.time(), "user": "me",
            "hostname": name, "version": "3.11", "cores": 2, **facts,
        }  # fmt: skip
        self.answers: dict[str, dict[str, Any]] = {
            "check": {"free": {"/d": PLENTY}, "busy": {}},
            "processes": {"left": []},
            "alive": {"said": ""},
            "read": {"text": None},
            "reach": {"failed": {}},
        }
        self.asked: list[str] = []

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append(do)
        return self.answers.get(do, {})


def health(*, ready: bool = True, detail: str = "", of: str = "") -> RoleState:
    reply = HealthReply("dfs.master", "h1", 7, 0.0, of or version(), ready, detail)
    return RoleState(UP, reply)


def found(link: ToldHost, state: RoleState | None = None) -> list[str]:
    return doctor._look(link, {"dfs.master": state or health()})


@pytest.fixture
def config() -> ClusterConfig:
    return read_config(CONFIG + "guard: false\n")


def test_the_doctor_finds_nothing_where_all_is_well(config: ClusterConfig) -> None:
    running = {"dfs.master": {"pid": 7}}

    assert found(ToldHost(config, "h1", running=running)) == []


def test_the_doctor_tells_a_daemon_that_ended_from_one_that_hangs(config: ClusterConfig) -> None:
    ended = ToldHost(config, "h1")
    ended.answers["alive"] = {"said": "starting\nno room on /d\n"}
    hanging = ToldHost(config, "h1", running={"dfs.master": {"pid": 7}})

    assert found(ended, RoleState(DOWN)) == [
        "h1: dfs.master does not run: `mrstream cluster up` starts it; its last words: no room on "
        "/d"
    ]
    assert found(hanging, RoleState(DEAD, None, "timed out")) == [
        "h1: dfs.master runs (pid 7) but does not answer from here (timed out): a firewall, or it "
        "hangs: see `mrstream cluster logs h1 dfs.master`"
    ]


def test_the_doctor_says_what_a_daemon_waits_for(config: ClusterConfig) -> None:
    state = health(ready=False, detail="reads its log")

    assert found(ToldHost(config, "h1"), state) == ["h1: dfs.master is not ready: reads its log"]


def test_the_doctor_looks_at_clocks_disks_and_strays(config: ClusterConfig) -> None:
    link = ToldHost(config, "h1", wall_s=time.time() + 3600)
    link.answers["check"] = {"free": {"/d": PLENTY, "/full": 1 << 20}}
    link.answers["processes"] = {"left": [(99, "sleep")]}

    assert found(link) == [
        "h1: its clock is +3600 s off: run a time service there",
        "h1: /full has only 1.0 MiB free",
        "h1: process 99 was left behind by a daemon that ended",
    ]


def test_the_doctor_misses_a_guard_and_a_backup() -> None:
    config = read_config(CONFIG + "backup: {to: /safe, every: 1h}\n")
    guard = {
        "pid": 1, "left_down": {}, "since": 0.0,
        "backup": {"at_s": time.time() - 10 * 3600, "error": "no room"},
    }  # fmt: skip

    assert found(ToldHost(config, "h1")) == [
        "h1: no guard runs, so nothing that ends there is started again: `mrstream cluster up` "
        "starts it"
    ]
    assert found(ToldHost(config, "h1", guard=guard)) == [
        "h1: the last backup to /safe failed: no room",
        "h1: there was no backup to /safe for 10.0 hours: see `mrstream cluster logs h1`",
    ]


def test_the_doctor_names_other_versions_and_sick_chunks() -> None:
    roles = {"h1": {"dfs.master": health(of="0.1")}, "h2": {"dfs.chunkserver": health()}}

    (other,) = doctor._versions(roles)

    assert other.startswith("version 0.1 runs as dfs.master on h1, while this is ")
    assert doctor._chunks({"missing": 1, "corrupt": 2, "under_replicated": 3}) == [
        "1 chunks have no good replica: see `mrstream dfs -fsck /`",
        "2 replicas are corrupt and are being replaced",
        "3 chunks have fewer replicas than wanted: repair is under way if there are enough hosts "
        "for it",
    ]
    assert doctor._chunks({"missing": 0, "corrupt": None}) == []


def up_of(config: ClusterConfig, said: list[tuple[str, str]]) -> Up:
    up = Up(config, lambda name, text: said.append((name, text)))
    up.cluster = Cluster(up.config, Secret.new())
    return up


def test_up_says_whose_clock_is_off(config: ClusterConfig) -> None:
    said: list[tuple[str, str]] = []
    up = up_of(config, said)

    up._look(ToldHost(up.config, "h1", wall_s=time.time() - 60))
    up._look(ToldHost(up.config, "h2"))

    assert [name for name, text in said if "CLOCK is 60 s off" in text] == ["h1"]


def test_up_goes_on_without_a_host_that_the_master_cannot_reach(config: ClusterConfig) -> None:
    """Two others that do not see each other are worth a warning: bytes may go another way."""
    said: list[tuple[str, str]] = []
    up = up_of(config, said)
    hosts = Hosts(up.config)
    hosts.links = [ToldHost(up.config, name) for name in ("h1", "h2", "h3")]
    for link, failed in zip(hosts.links, ({"h3": "timed out"}, {"h3": "refused"}, {}), strict=True):
        link.answers["reach"] = {"failed": failed}  # type: ignore[attr-defined]

    up._see_each_other(hosts)

    assert {name: str(error) for name, error in hosts.failed.items()} == {
        "h3": "h1 cannot reach h3 at 192.0.2.3 (timed out): is the address right, and does a "
        "firewall let the ports through?"
    }
    assert said == [("h2", "WARNING: h2 cannot reach h3 at 192.0.2.3 (refused)")]
    assert all("unlisten" in link.asked for link in hosts.links)  # type: ignore[attr-defined]


def test_a_master_that_goes_on_with_fewer_copies_of_its_log_is_told_of() -> None:
    assert log_copy_lines({"in_step": 2, "wanted": 2}) == []
    assert log_copy_lines({"in_step": None, "wanted": None}) == []
    assert log_copy_lines({"in_step": 1, "wanted": 2}) == [
        "1 of 2 copies of the dfs master's log are in step"
    ]
    (alone,) = log_copy_lines({"in_step": 0, "wanted": 2})
    assert alone.endswith("one copy only, on the master's own disk")
