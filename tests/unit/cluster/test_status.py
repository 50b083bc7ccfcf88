"""What `cluster status` says (cluster/hosts/status.py)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.standing import Standing
from mrstream.cluster.hosts.health import RoleState
from mrstream.cluster.hosts.status import status_document, status_lines
from mrstream.cluster.leader.group_view import view_of
from mrstream.cluster.leader.office import words_of
from mrstream.cluster.wire.messages import HealthReply

HOSTS = ("h1", "h2", "h3")
MEMBERS = {host: MemberId(f"{host}/j") for host in HOSTS}
LED_SINCE_S = 1_700_000_000.0
CONFIG = "name: lab\nguard: false\nhosts: {h1: {}, h2: {}, h3: {}}\n"


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def standing(host: str, leader: str) -> Standing:
    return Standing(
        MEMBERS[host], MEMBERS.get(leader, MemberId("")), 7, 5, 5, tuple(MEMBERS.values()),
        behind_s=0.0, is_serving=host == leader, since_s=LED_SINCE_S if host == leader else 0.0,
    )  # fmt: skip


def document(leader: str) -> dict[str, Any]:
    """Three dfs masters, of which that one leads, as `status --json` has them."""
    answers: dict[str, Standing | str] = {host: standing(host, leader) for host in HOSTS}
    roles = {}
    for host in HOSTS:
        ready, words = words_of(standing(host, leader))
        health = HealthReply("dfs.master", host, 1, LED_SINCE_S - 86400, "0", ready, words)
        roles[host] = {"dfs.master": RoleState("up", health), "dfs.chunkserver": RoleState("down")}
    made = status_document(Cluster(read_config(CONFIG), Secret("c1", b"s" * 32)), roles, {}, {})
    return made | {"groups": {"dfs": view_of("dfs.master", answers).document()}}


def test_the_first_line_names_who_leads_and_not_who_was_to_lead_first() -> None:
    assert status_lines(document("h2"))[0] == "cluster lab, master h2"
    assert status_lines(document(""))[0] == "cluster lab, no master leads at the moment"
    alone = {**document("h2"), "groups": {}}
    assert status_lines(alone)[0] == "cluster lab, master h1"


def test_a_leader_says_since_when_and_others_do_not() -> None:
    """Its process may have been a shadow for days before."""
    lines = status_lines(document("h2"))

    (leads,) = [line for line in lines if "leader" in line]
    assert leads.startswith("h2 ") and leads.endswith("leader, epoch 7, since 11-14 22:13")
    assert "11-13 22:13" in leads, "since when its process runs"
    assert sum("since" in line for line in lines) == 1


def test_without_a_majority_every_member_says_what_is_missing() -> None:
    lines = status_lines(document(""))

    assert sum("no leader: 2 of 3 members must run and be reached" in line for line in lines) == 3
