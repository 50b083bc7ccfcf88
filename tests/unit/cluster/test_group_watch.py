"""Groups that are looked at again and again (cluster/leader/group_watch.py)."""

from __future__ import annotations

import threading

import pytest

from mrstream.cluster.config.config import DFS_MASTER, LOCK_MASTER, MAPREDUCE_MASTER, Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.leader.group_view import GroupView
from mrstream.cluster.leader.group_watch import ASK_EVERY_S, GroupWatch
from tests.support.tui_states import group

CLUSTER = Cluster(
    read_config("name: t\nlock: {}\nmasters: [h1, h2, h3]\nhosts: {h1: {}, h2: {}, h3: {}}\n"),
    Secret("c1", b"s" * 32),
)
ROLES = (DFS_MASTER, MAPREDUCE_MASTER, LOCK_MASTER)


class Asked:
    """Groups that answer when the test lets them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.count = dict.fromkeys(ROLES, 0)
        self.may_answer = {role: threading.Event() for role in ROLES}
        self.epoch = 7

    def look(self, cluster: Cluster, role: str) -> GroupView:
        self.count[role] += 1
        assert self.may_answer[role].wait(60)
        return group(role, epoch=self.epoch)

    def let(self, *roles: str) -> None:
        for role in roles:
            self.may_answer[role].set()

    def hold(self, *roles: str) -> None:
        for role in roles:
            self.may_answer[role].clear()

    def watch(self) -> GroupWatch:
        return GroupWatch(CLUSTER, self.look, lambda: self.now_s)


def test_a_group_that_does_not_answer_holds_up_neither_the_looker_nor_the_others() -> None:
    asked = Asked()
    watch = asked.watch()
    assert watch.latest() == {}, "nobody has answered, and nobody waits"

    asked.let(DFS_MASTER, LOCK_MASTER)
    for asking in [asking for role, asking in watch._asking.items() if role != MAPREDUCE_MASTER]:
        asking.result(60)

    assert list(watch.latest()) == ["dfs", "lock"]
    asked.let(MAPREDUCE_MASTER)
    assert list(watch.latest(60)) == ["dfs", "jobs", "lock"]


def test_who_has_answered_is_asked_again_when_that_is_old_and_not_before() -> None:
    asked = Asked()
    asked.let(*ROLES)
    watch = asked.watch()
    watch.latest(60)

    asked.now_s = ASK_EVERY_S - 0.1
    watch.latest()
    assert set(asked.count.values()) == {1}

    asked.hold(*ROLES)
    asked.now_s, asked.epoch = ASK_EVERY_S, 8
    assert watch.latest()["dfs"].epoch == 7, "what is known is told meanwhile"
    again = list(watch._asking.values())
    asked.let(*ROLES)
    for asking in again:
        asking.result(60)
    assert {view.epoch for view in watch.latest().values()} == {8}
    assert set(asked.count.values()) == {2}


def test_one_that_is_still_being_asked_is_not_asked_twice() -> None:
    asked = Asked()
    watch = asked.watch()
    for asked.now_s in (0.0, 10.0, 20.0):
        watch.latest()
    asked.let(*ROLES)
    watch.latest(60)

    assert set(asked.count.values()) == {1}


def test_a_bug_in_the_asking_is_heard_of() -> None:
    def wrong(cluster: Cluster, role: str) -> GroupView:
        raise AssertionError("a bug")

    with pytest.raises(AssertionError, match="a bug"):
        GroupWatch(CLUSTER, wrong).latest(60)
