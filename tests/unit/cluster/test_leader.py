"""Finding the leader, and the gate before what a master says: both without IO."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.cluster.config.reader import read_config
from mrstream.cluster.consensus.members import ALONE, MemberId, member_id
from mrstream.cluster.consensus.standing import NotLeader, Standing
from mrstream.cluster.hosts.doctor import one_host
from mrstream.cluster.journal.clock_rate import ClockRate
from mrstream.cluster.leader.epoch_file import EpochFile
from mrstream.cluster.leader.finding import HOPS_MAX, Finding
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.group_view import view_of
from mrstream.cluster.leader.hint import Hint, read_hint, write_hint
from mrstream.cluster.leader.office import words_of

SEEDS = {"h1": "h1:1", "h2": "h2:1", "h3": "h3:1"}


def not_leader(leader: str = "", epoch: int = 1, address: str = "") -> NotLeader:
    return NotLeader("no", leader=leader, epoch=epoch, address=address)


def standing(leader: str, epoch: int, address: str = "") -> Standing:
    member = MemberId(f"{leader}/j") if leader else MemberId("")
    return Standing(MemberId("h3/j"), member, epoch, 0, 0, address=address)


class TestFinding:
    def test_the_first_seed_is_asked_unless_a_hint_names_another(self) -> None:
        assert Finding(SEEDS).address == "h1:1"
        assert Finding(SEEDS, "h2").address == "h2:1"
        assert Finding(SEEDS, "gone").address == "h1:1"

    def test_a_hint_is_followed_at_once_and_five_times_at_most(self) -> None:
        """Two members that each point to the other do not keep a client busy."""
        finding = Finding(SEEDS)

        follows = []
        for epoch in range(1, 9):
            asked = finding.address
            follows.append(
                finding.refused(asked, not_leader("h2" if asked == "h1:1" else "h1", epoch))
            )

        assert follows[: HOPS_MAX + 1] == [True] * HOPS_MAX + [False]

    def test_without_a_hint_each_member_is_asked_once_before_the_caller_waits(self) -> None:
        finding = Finding(SEEDS)

        asked, again = [], True
        while again:
            asked.append(finding.address)
            again = finding.refused(finding.address, not_leader())

        assert asked == ["h1:1", "h2:1", "h3:1"]

    def test_a_dead_leader_is_not_asked_again_because_its_followers_still_name_it(self) -> None:
        finding = Finding(SEEDS)
        finding.epoch = 4

        assert finding.lost("h1:1") and finding.address == "h2:1"
        assert finding.refused("h2:1", not_leader("h1", 4)) and finding.address == "h3:1"
        assert not finding.refused("h3:1", not_leader("h1", 4))

    def test_news_of_an_older_epoch_is_no_news(self) -> None:
        """A member that was cut off still believes in the leader of before."""
        finding = Finding(SEEDS)
        assert finding.refused("h1:1", not_leader("h2", 7))

        assert finding.refused("h2:1", not_leader("h1", 6))
        assert finding.address == "h3:1"
        assert not finding.heard(standing("h1", 6), "h3:1")
        assert finding.heard(standing("h1", 8), "h3:1") and finding.address == "h1:1"

    def test_who_waits_for_the_leader_that_others_name_goes_on_waiting(self) -> None:
        finding = Finding(SEEDS)

        assert not finding.heard(standing("h1", 3), "h1:1")
        assert not finding.heard(standing("", 3), "h1:1")
        assert finding.heard(standing("h2", 4), "h1:1")

    def test_a_leader_that_cluster_yaml_does_not_know_is_found_by_its_address(self) -> None:
        finding = Finding(SEEDS)

        assert finding.refused("h1:1", not_leader("h9", 2, "h9:1"))
        assert finding.address == "h9:1"
        assert finding.refused("h9:1", not_leader("h8", 3, "no address"))
        assert finding.address in SEEDS.values()

    def test_what_another_thread_has_found_meanwhile_is_not_undone(self) -> None:
        finding = Finding(SEEDS)
        assert finding.refused("h1:1", not_leader("h3", 2))

        assert finding.lost("h1:1")
        assert finding.address == "h3:1"

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["refused", "lost", "answered", "heard"]),
                st.sampled_from([*SEEDS.values(), "x:1"]),
                st.sampled_from(["", "h1", "h2", "h9"]),
                st.integers(0, 5),
                st.one_of(st.none(), st.text(max_size=6), st.just("h9:1"), st.integers()),
            ),
            max_size=30,
        )
    )
    def test_whatever_it_hears_it_knows_whom_to_ask_and_epochs_never_fall(
        self, news: list[tuple[str, str, str, int, Any]]
    ) -> None:
        finding, before = Finding(SEEDS), 0
        for what, asked, leader, epoch, address in news:
            if what == "refused":
                finding.refused(asked, NotLeader("", leader=leader, epoch=epoch, address=address))
            elif what == "lost":
                finding.lost(asked)
            elif what == "answered":
                finding.answered(asked)
            else:
                finding.heard(standing(leader, epoch, str(address)), asked)
            finding.check_invariants()
            assert finding.address
            assert finding.epoch >= before
            before = finding.epoch


class Restless(Finding):
    """Wrong: it never lets the caller wait."""

    def _rest(self) -> None:
        pass


class Credulous(Finding):
    """Wrong: it follows any name."""

    def _believe(self, host: str, address: str, epoch: int) -> bool:
        self.host, self.epoch = host, max(epoch, self.epoch)
        return True


@pytest.mark.parametrize("wrong", [Restless, Credulous])
def test_a_finding_that_breaks_the_law_of_a_field_is_found_out(wrong: type[Finding]) -> None:
    finding = wrong(SEEDS)
    finding.check_invariants()

    with pytest.raises(AssertionError):
        for host in ("h3", "h2", "gone"):
            finding.refused(SEEDS[finding.host], not_leader(host, 1))
            finding.check_invariants()
            finding.lost(SEEDS[finding.host])
            finding.check_invariants()


class FakeLog:
    def __init__(self) -> None:
        self.seen = self.durable = 0


class TestGate:
    def gate(self) -> tuple[Gate[str], FakeLog, list[str], list[bool]]:
        log, said, lease = FakeLog(), list[str](), [True]
        return Gate(log, said.append, lambda: lease[0]), log, said, lease

    def test_what_rests_on_nothing_new_is_said_at_once(self) -> None:
        gate, _, said, _ = self.gate()
        gate.say(["a", "b"])
        assert said == ["a", "b"] and gate.is_clear

    def test_nothing_is_said_before_what_it_rests_on_is_durable_and_order_is_kept(self) -> None:
        """M1; a read's answer waits behind the change that it saw."""
        gate, log, said, _ = self.gate()
        log.seen = 1
        gate.say(["one"])
        log.seen = 2
        gate.say(["two"])
        log.durable = 1
        gate.release()
        assert said == ["one"] and gate.waits_for == 2
        log.durable = 2
        gate.release()
        assert said == ["one", "two"] and gate.waits_for == 0

    def test_nothing_is_said_without_a_lease_not_even_what_is_durable(self) -> None:
        """C4; and what was held is said when the lease comes back, which a deposed leader's never
        does."""
        gate, log, said, lease = self.gate()
        lease[0] = False
        gate.say(["read"])
        log.seen = log.durable = 3
        gate.release()
        assert said == [] and len(gate) == 1 and not gate.is_clear
        lease[0] = True
        gate.release()
        assert said == ["read"]


class TestFiles:
    def test_epochs_of_a_master_that_is_alone_only_rise(self, tmp_path: Path) -> None:
        path = str(tmp_path / "epoch")
        assert EpochFile(path).read() == 0
        assert [EpochFile(path).next(), EpochFile(path).next()] == [1, 2]
        assert EpochFile(path).read() == 2

    def test_a_hint_is_kept_in_the_users_folder_and_never_in_the_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path))
        write_hint("c", "lock.master", Hint("h2", 3), "id")
        assert read_hint("c", "lock.master", "id") == Hint()
        folder = tmp_path / "clusters" / "c"
        folder.mkdir(parents=True)
        write_hint("c", "lock.master", Hint("h2", 3), "id")
        write_hint("c", "dfs.master", Hint("h1", 1), "id")
        assert read_hint("c", "lock.master", "id") == Hint("h2", 3)
        assert read_hint("c", "lock.master", "another cluster of that name") == Hint()
        write_hint("c", "lock.master", Hint("h1", 2), "id")
        assert read_hint("c", "lock.master", "id") == Hint("h2", 3), "an older epoch is no news"
        of_before = '{"lock.master": "h2"}'
        for damage in ("", "[]", '{"lock.master": 3}', "[" * 100_000, of_before):
            (folder / "leaders.json").write_text(damage)
            assert read_hint("c", "lock.master", "id") == Hint()
            write_hint("c", "lock.master", Hint("h3", 4), "id")
            assert read_hint("c", "lock.master", "id") == Hint("h3", 4)
        kept = {"lock.master": {"host": "h3", "epoch": -1, "cluster": "id"}}
        (folder / "leaders.json").write_text(json.dumps(kept))
        assert read_hint("c", "lock.master", "id") == Hint("h3", 0)


def test_a_member_says_of_itself_what_an_operator_acts_on() -> None:
    h1, h2, h3 = (MemberId(f"h{n}/j") for n in (1, 2, 3))

    def words(member: MemberId, leader: MemberId, **more: Any) -> tuple[bool, str]:
        return words_of(Standing(member, leader, 7, 5, 5, voters=(h1, h2, h3), **more))

    assert words(h1, h1, is_serving=True) == (True, "leader, epoch 7")
    assert words(h2, h1, behind_s=0.04) == (True, "shadow of h1, epoch 7, 0.0 s behind")
    assert words(h2, MemberId(""))[0] is False
    assert "2 of 3" in words(h2, MemberId(""))[1]
    assert "2 of 3" in words(h1, h1)[1], "a leader that has lost its majority"
    learner = Standing(h3, h1, 7, 31, 31, (h1, h2), (h3,), synced=31, leader_committed=50)
    assert words_of(learner) == (True, "learner of h1, epoch 7, 62 %")
    near = msgspec.structs.replace(learner, synced=1999, leader_committed=2000)
    assert words_of(near)[1].endswith("99 %"), "only who has all of it has 100"
    listens = Standing(h2, h1, 7, 50, 50, (h1,), (h2,), synced=50, leader_committed=50)
    assert words_of(listens) == (True, "listens to h1, epoch 7, has all of its log")
    alone = words_of(Standing(h1, MemberId(""), 0, 0, 0))
    assert alone[0] is False and "cluster up" in alone[1]


class TestGroupView:
    H1, H2, H3 = (MemberId(f"h{n}/j") for n in (1, 2, 3))
    CONFIG = read_config(
        "name: t\nlock: {}\nmasters: [h1, h2, h3]\nhosts: {h1: {}, h2: {}, h3: {}}\n"
    )

    def one(self, member: MemberId, leader: MemberId, epoch: int = 7, **more: Any) -> Standing:
        voters = (self.H1, self.H2, self.H3)
        return Standing(member, leader, epoch, 5, 5, voters=voters, behind_s=0.0, **more)

    def test_a_whole_group_has_nothing_to_be_said_against_it(self) -> None:
        view = view_of(
            "lock.master",
            {
                "h1": self.one(self.H1, self.H1, is_serving=True),
                "h2": self.one(self.H2, self.H1),
                "h3": self.one(self.H3, self.H1),
            },
        )

        assert view.line() == "group lock: h1 leads epoch 7; 3 of 3 members answer, 2 must"
        assert view.findings(self.CONFIG) == []

    def test_a_master_that_is_alone_leads_and_is_no_group_yet(self) -> None:
        """`up` that makes a group of it replaces all servers at once: until the group is founded
        none of them finds a leader (a `restore` waited 15 s for each host)."""
        alone = member_id("h1", ALONE)
        standing = Standing(alone, alone, 3, 5, 5, (alone,), is_serving=True)
        view = view_of("dfs.master", {"h1": standing, "h2": "no answer"})
        assert (view.leader, view.voters, view.is_founded) == ("h1", ("h1",), False)

        founded = Standing(self.H1, self.H1, 4, 5, 5, (self.H1,), (self.H2,), is_serving=True)
        assert view_of("dfs.master", {"h1": founded, "h2": "no answer"}).is_founded

    def test_an_old_leader_that_was_cut_off_is_not_taken_for_the_leader(self) -> None:
        view = view_of(
            "lock.master",
            {
                "h1": self.one(self.H1, self.H1, 7),
                "h2": self.one(self.H2, self.H2, 8, is_serving=True),
                "h3": "no answer",
            },
        )

        assert (view.leader, view.epoch) == ("h2", 8)
        assert view.members["h3"].why == "no answer"
        assert "the next failure stops it" in view.findings(self.CONFIG)[0]

    def test_less_than_half_is_said_with_what_to_do(self) -> None:
        view = view_of("lock.master", {"h1": self.one(self.H1, self.H1), "h2": "", "h3": ""})

        assert "NO LEADER, 1 of 3 members answer, 2 must" in view.line()
        assert "nothing is served until h2 or h3 is back" in view.findings(self.CONFIG)[0]

    def test_a_host_that_does_not_vote_and_one_that_lags_are_named(self) -> None:
        lagging = msgspec.structs.replace(self.one(self.H2, self.H1), behind_s=9.0)
        view = view_of(
            "lock.master",
            {
                "h1": self.one(self.H1, self.H1, is_serving=True),
                "h2": lagging,
                "h3": self.one(MemberId("h3/new"), MemberId(""), 0),
            },
        )

        words = view.findings(self.CONFIG)
        assert any("h3 does not vote (outside)" in line for line in words)
        assert any("h2 is 9 s behind" in line for line in words)

    def test_a_group_that_nobody_speaks_of_is_not_taken_for_one_that_was_never_founded(
        self,
    ) -> None:
        """`up` would found nothing: its hosts are frozen, or cut off."""
        silent = view_of("lock.master", {"h1": "timed out", "h2": "", "h3": ""})
        new = view_of("lock.master", {"h1": Standing(self.H1, MemberId(""), 0, 0, 0), "h2": ""})

        assert silent.line() == "group lock: NO ANSWER from h1, h2, h3: nothing is served"
        (line,) = silent.findings(self.CONFIG)
        assert "none of h1, h2, h3 answers: nothing is served" in line
        assert "not founded" in new.line() and "not founded" in new.findings(self.CONFIG)[0]

    def test_a_learner_says_how_much_it_has(self) -> None:
        new = MemberId("h3/new")
        voters = (self.H1, self.H2, self.H3)
        answers: dict[str, Standing | str] = {
            "h1": Standing(self.H1, self.H1, 7, 50, 50, voters, (new,), is_serving=True),
            "h2": Standing(self.H2, self.H1, 7, 50, 50, voters, (new,), behind_s=0.0),
            "h3": Standing(new, self.H1, 7, 0, 31, voters, (new,), synced=31),
        }
        view = view_of("lock.master", answers)

        assert view.document()["members"]["h3"]["learned_percent"] == 62
        assert view.document()["members"]["h2"]["learned_percent"] is None
        assert any("h3 does not vote (learner)" in line for line in view.findings(self.CONFIG))

    def test_a_clock_whose_rate_is_off_is_named_and_one_within_bounds_is_not(self) -> None:
        off = msgspec.structs.replace(self.one(self.H2, self.H1), clock_rate=-0.02)
        well = msgspec.structs.replace(self.one(self.H3, self.H1), clock_rate=0.009)
        leads = self.one(self.H1, self.H1, is_serving=True)
        view = view_of("lock.master", {"h1": leads, "h2": off, "h3": well})

        (line,) = view.findings(self.CONFIG)
        assert "the clock of h2 runs -2.0 % faster than that of h1, and leases bear 1 %" in line

    def test_masters_in_one_rack_are_unwise_where_there_are_others(self) -> None:
        racks = "{h1: {rack: a}, h2: {rack: a}, h3: {rack: a}, h4: {rack: b}}"
        config = read_config(f"name: t\nlock: {{}}\nmasters: [h1, h2, h3]\nhosts: {racks}\n")
        answers: dict[str, Standing | str] = {
            host: self.one(member, self.H1, is_serving=host == "h1")
            for host, member in (("h1", self.H1), ("h2", self.H2), ("h3", self.H3))
        }
        (line,) = view_of("lock.master", answers).findings(config)
        assert "all of masters are in rack 'a', whose loss stops it" in line

    def test_of_two_hosts_the_one_that_listens_is_told_of_and_one_copy_only_is(self) -> None:
        config = read_config("name: t\nlock: {}\nhosts: {h1: {}, h2: {}}\n")
        leads = Standing(self.H1, self.H1, 7, 50, 50, (self.H1,), (self.H2,), is_serving=True)
        listens = Standing(self.H2, self.H1, 7, 50, 50, (self.H1,), (self.H2,), synced=50)
        view = view_of("dfs.master", {"h1": leads, "h2": listens})
        assert view.line() == "group dfs: h1 leads epoch 7; h2 listens; only h1 can lead"
        (line,) = view.findings(config)
        assert "no fail-over: two hosts" in line and "restore --master h2" in line

        late = view_of(
            "dfs.master", {"h1": leads, "h2": msgspec.structs.replace(listens, synced=31)}
        )
        assert "h2 listens, and has 62 % of the log" in late.line()

        alone = view_of("dfs.master", {"h1": leads, "h2": "no answer"})
        assert "ONE COPY ONLY: h2 does not listen (silent)" in alone.line()
        assert any("one copy only" in line for line in alone.findings(config))


def test_a_cluster_without_fail_over_is_named_by_doctor() -> None:
    assert "no fail-over: one host" in one_host(read_config("name: t\nhosts: {h1: {}}\n"))[0]
    lone = read_config("name: t\nmasters: [h1]\nhosts: {h1: {}, h2: {}, h3: {}}\n")
    assert "h1 alone is in masters" in one_host(lone)[0]
    assert one_host(read_config("name: t\nhosts: {h1: {}, h2: {}, h3: {}}\n")) == []
    local = read_config('name: t\nhosts: {"h[1-3]": {via: local, address: "127.0.0.[1-3]"}}\n')
    assert one_host(local) == [], "hosts of one machine are a trial"


class TestClockRate:
    """Beats tell how fast another clock runs, whatever the network does to them."""

    def feed(self, rate: float, jitter_s: float, seconds: float, sender: str = "h1/j") -> ClockRate:
        measured, chance = ClockRate(), random.Random(7)
        for beat in range(int(seconds / 0.5)):
            sent_s = 1000.0 + beat * 0.5
            arrives_s = 50.0 + beat * 0.5 * (1 + rate) + chance.random() * jitter_s
            measured.heard(sender, sent_s, arrives_s)
        return measured

    @pytest.mark.parametrize("rate", [0.02, -0.02, 0.0, 0.012])
    def test_a_rate_is_known_after_two_minutes_and_better_than_the_bound(self, rate: float) -> None:
        assert self.feed(rate, 0.2, 150.0).faster == pytest.approx(rate, abs=0.002)

    def test_nothing_is_said_too_early_and_another_leader_begins_anew(self) -> None:
        assert self.feed(0.02, 0.2, 60.0).faster == 0.0
        measured = self.feed(0.02, 0.2, 150.0)
        measured.heard("h2/j", 5.0, 5.0)
        assert measured.faster == 0.0
