"""Histories by name: papers, errata and published bugs, played on a stage, step by step.

Each takes a mutant or none, and raises `AssertionError` where a promise is broken. Without a mutant
all of them pass; tests/simulation/test_consensus_mutants.py says which mutant each one catches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.following import LogsDiffer
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.messages import (
    AppendLog,
    Position,
    TransferNow,
    Vote,
    Voted,
)
from mrstream.cluster.consensus.records import EpochBegan, decode_own, encode_own
from tests.simulation.consensus.mutants import Mutant
from tests.simulation.consensus.oracle import fold
from tests.simulation.consensus.stage import Stage

History = Callable[[Mutant | None], None]


def is_append(sender: str) -> Callable[[str, str, Any], bool]:
    return lambda source, _, word: source == sender and isinstance(word, AppendLog)


def is_vote(word: Any) -> bool:
    return isinstance(word, Voted) and not word.pre


def begins_epoch(source: str, to: str, word: Any) -> bool:
    records = word.records if isinstance(word, AppendLog) else ()
    return any(isinstance(decode_own(record), EpochBegan) for record in records)


def figure_8(mutant: Mutant | None = None) -> None:
    """Raft, figure 8: a record of an old epoch on a majority can still be overwritten, so it is
    not committed by counting."""
    stage = Stage("abcde", mutant)
    stage.found("abcde")
    for host in stage.hosts.values():
        host.message_bytes_max = 1
    stage.cut("a", "cde")
    stage.write("a", "x", "old")  # (a) on a and b alone
    stage.run(0.05)
    stage.kill("a")

    stage.cut("b", "acde")
    stage.elect("e", seconds=0.0)
    stage.hold(is_append("e"))  # (b) e leads, and writes nowhere but at home
    stage.run(0.02)
    assert stage["e"].replica.is_leading
    stage.kill("e")
    stage.held.clear()
    stage.release()

    stage.heal()
    stage.start("a")
    stage.hold(begins_epoch)
    stage.elect(
        "a"
    )  # (c) a leads again; its old record reaches c and d, the first of its epoch none
    stage.run(0.15)
    assert stage["a"].replica.is_leading
    stage.kill("a")

    stage.held.clear()
    stage.release()
    stage.heal()
    stage.start("e")
    stage.elect("e")  # (d) e has the later epoch, and overwrites
    stage.run(0.5)
    assert stage.leads() == "e"
    stage.start("a")
    stage.run(0.5)
    assert "old" not in stage["a"].state.values()


def longer_but_older(mutant: Mutant | None = None) -> None:
    """Raft §5.4.1: the later epoch decides, not the longer log."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("a", "bc")
    for value in "1234":
        stage.write("a", "x", value)  # only at a
    stage.run(0.05)
    stage.elect("b")
    number = stage.write("b", "x", "committed")
    stage.run(0.2)
    assert stage.outcomes[number] == [("done", "committed")]
    stage.kill("b")
    stage.heal()
    stage.elect("a")  # a's log is longer, and of an older epoch
    stage.run(0.5)
    assert stage.leads() == ""
    stage.elect("c")
    stage.run(0.5)
    assert stage.leads() == "c"
    assert stage["a"].state.get("x") == "committed", "M2: a state that is not the fold of the log"


def vote_before_a_restart(mutant: Mutant | None = None) -> None:
    """Raft §5.2 with §3.8's persistence: two candidates of one epoch, and an elector that starts
    again between their questions, votes for one of them only."""
    stage = Stage("abc", mutant)
    stage.found("cab")
    stage.kill("c")
    stage.start("c")
    stage.hold_back("ab")
    stage.run(stage.timing.promise_s * 1.05)
    stage.hold(lambda source, to, word: isinstance(word, Vote) or is_vote(word))
    for name in "ac":  # both learn that they would win, and stand
        stage[name].replica.state.stand_at_s = stage.hosts[name].clock_s()
        stage[name].handle(e.Tick())
    stage.run(0.01)
    asked = [(s, t, w) for s, t, w in stage.held if isinstance(w, Vote) and t == stage.member("b")]
    assert [s[0] for s, _, _ in asked] == ["a", "c"], asked
    stage.hosts["b"].receive(*asked[0])
    stage.kill("b")
    stage.start("b")
    stage.hosts["b"].receive(*asked[1])
    stage.run(0.05)


def epoch_before_a_restart(mutant: Mutant | None = None) -> None:
    """Raft §3.8: an elector that has followed a later leader takes nothing of an earlier one,
    after its restart neither."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("a", "b")  # partial: both reach c
    stage.hold(lambda source, to, word: {source, to} == {"a", "c"})
    stage.write("a", "x", "lost")  # only at a; on its way to c
    stage.run(0.01)
    stage.kill("c")
    stage.start("c")
    stage.run(stage.timing.promise_s * 1.05)
    stage.elect("b", seconds=0.0)
    stage.run(0.0045)  # c has voted for b, and b has not sent it anything yet
    assert stage["c"].replica.epoch == 2
    stage.kill("c")
    stage.start("c")
    assert stage["c"].replica.epoch == 2, "C1: c has forgotten the epoch in which it voted"


def loner_comes_back(mutant: Mutant | None = None) -> None:
    """Dissertation §9.6: a member that was cut off does not depose the leader when it is back."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("c", "ab")
    stage.run(8.0)
    stage.heal()
    stage.run(2.0)
    assert stage.leads() == "a" and stage["a"].replica.epoch == 1, "a member that was away deposes"
    assert stage["c"].replica.epoch == 1


def partial_partition(mutant: Mutant | None = None) -> None:
    """a and b do not hear each other, both reach c (the outage of Cloudflare in 2020): the leader
    stays, and goes on committing."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("a", "b")
    for _ in range(20):
        number = stage.write("a", "x", "y")
        stage.run(0.5)
        assert stage.outcomes[number] == [("done", "y")]
    assert stage["a"].replica.epoch == 1, "a member that hears half of the others deposes"


def later_epoch_is_taken_back(mutant: Mutant | None = None) -> None:
    """etcd: a member whose epoch ran ahead hears nobody; it must tell the leader, which resigns,
    and all three go on in a later epoch."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("a", "bc")
    stage.hold(lambda source, to, word: is_vote(word))
    stage.elect("c", seconds=0.0)
    stage.run(0.01)  # c has stood, nobody's vote reaches it
    assert stage["c"].replica.epoch == 2
    stage.held.clear()
    stage.release()
    stage.heal()
    stage.run(6.0)
    for name in "abc":
        if stage.leads() == "":
            stage.elect(name)
    number = stage.write(stage.leads()[0], "x", "after")
    stage.run(0.5)
    assert stage.outcomes[number] == [("done", "after")]
    assert stage["c"].replica.committed == stage["a"].replica.committed


def member_with_an_emptied_disk(mutant: Mutant | None = None) -> None:
    """KIP-853: a voter that lost its disk and comes back under its old name would elect a leader
    that never saw what it had acknowledged."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("c", "ab")
    number = stage.write("a", "x", "kept")
    stage.run(0.2)
    assert stage.outcomes[number] == [("done", "kept")]
    old = stage.member("b")
    stage.hosts["b"].empty()
    stage.kill("a")
    stage.heal()
    del stage.oracle.logs[old]
    stage.start("b")
    stage.elect("c")
    stage.run(1.0)
    assert stage.leads() == "", "C5: an emptied disk has voted"
    stage.start("a")
    stage.elect("a")
    for _ in range(20):
        stage.run(0.3)
        stage[stage.leads() or "a"].handle(e.JoinAsked(stage.member("b")))
    assert [m for m in stage["a"].replica.members.voters if m == stage.member("b")]
    assert stage["b"].state["x"] == "kept" and len(stage["a"].replica.members.voters) == 3


def two_changes_of_members(mutant: Mutant | None = None) -> None:
    """Ongaro's erratum of 2015: two leaders, each with a change of its own, must not both commit:
    a adds e, cut off; b, elected without knowing, removes a."""
    stage = Stage("abcde", mutant)
    stage.found("abcd", learners="e")
    stage.cut("a", "bcd")
    stage.ask("a", e.Promote(101, stage.member("e")))
    stage.run(0.1)  # a and e: voters are a to e
    assert len(stage["a"].replica.members.voters) == 5
    stage.hold(is_append("b"))
    stage.elect("b")
    said = stage.ask("b", e.Remove(102, stage.member("a")))
    assert isinstance(said, c.Refused), "C6: changed members before a record of its epoch"
    stage.held.clear()
    stage.release()
    stage.run(0.5)
    said = stage.ask("b", e.Remove(103, stage.member("a")))
    stage.run(0.3)
    assert isinstance(said, c.Accepted) and stage["b"].replica.committed >= said.sequence
    stage.heal()
    stage.cut("b", "acde")
    stage.cut("c", "ade")
    stage.elect("a")  # its own list: a, d, e are three of five; d knows better
    assert not stage["a"].replica.is_leading


def answers_come_late(mutant: Mutant | None = None) -> None:
    """C4: the lease runs from when a beat was sent; answers that took long give no more time."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    late = lambda source, to, word: to == "a" and isinstance(word, Position)  # noqa: E731
    stage.hold(late)
    stage.run(0.1)
    stage.cut("a", "bc")  # nothing sent from now on arrives; what was answered is on its way
    stage.hold_back("bc")
    stage.run(stage.timing.usable_s * 0.7)
    stage.release()
    stage.elect("b", wait_s=0.3)
    number = stage.write("b", "x", "new")
    stage.run(0.1)
    assert stage.outcomes[number] == [("done", "new")]
    stage.hosts["a"].start()
    stage.read("a", "x")


def hand_over_is_given_up(mutant: Mutant | None = None) -> None:
    """C5: a release counts for what was promised before it, not for what was promised after the
    leader went on."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.hold(lambda source, to, word: isinstance(word, TransferNow))
    stage.hold_back("bc")
    stage.ask("a", e.Transfer(101, stage.member("b")))
    stage.run(stage.timing.transfer_s_max + 0.5)
    assert isinstance(stage.hosts["a"].answers[101], c.Refused)
    assert stage.leads() == "a" and stage.held
    number = stage.read("a", "x")
    stage.run(0.05)
    assert stage.outcomes[number] == [("done", "")], "the leader goes on"
    stage.hold_back("bc")
    stage.release()
    stage.run(0.2)
    assert stage.leads() == "a", "C4: an old hand-over is taken for a new one"


def hand_over_comes_late(mutant: Mutant | None = None) -> None:
    """C4: who went on after a hand-over has no lease of before it: the successor may lead."""
    stage = Stage("abc", mutant, Timing(lease_s=3.0, beat_s=0.1, transfer_s_max=1.0))
    stage.found("abc")
    stage.hold(lambda source, to, word: isinstance(word, TransferNow))
    stage.hold_back("bc")
    stage.ask("a", e.Transfer(101, stage.member("b")))
    stage.run(0.95)
    stage.cut("a", "bc")
    stage.release(lambda source, to, word: True)
    assert stage["b"].replica.is_leading
    number = stage.write("b", "x", "new")
    stage.run(0.1)
    assert stage.outcomes[number] == [("done", "new")]
    stage.read("a", "x")  # a has gone on by now, but has heard from nobody since
    stage.run(0.3)


def hand_over(mutant: Mutant | None = None) -> None:
    """C4: the successor leads in far less than a lease, and the old leader answers nobody."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.write("a", "x", "before")
    stage.run(0.1)
    stage.hold(lambda source, to, word: to == "a")  # it does not hear of its successor
    stage.ask("a", e.Transfer(101, stage.member("b")))
    stage.run(0.1)
    assert stage.leads().endswith("b")
    number = stage.read("b", "x")
    stage.run(0.05)
    assert stage.outcomes[number] == [("done", "before")]
    stage.read("a", "x")
    stage.run(0.05)


def logged_request_is_not_refused(mutant: Mutant | None = None) -> None:
    """F5: a leader that loses its epoch says nothing about a request that its log has: the
    successor may commit it."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.hold(lambda source, to, word: to == "a")
    number = stage.write("a", "x", "logged")
    stage.run(0.05)  # b and c have it; a does not know
    stage.cut("a", "bc")
    stage.run(stage.timing.lease_s * 2)
    stage.held.clear()
    stage.release()
    stage.elect("b")
    stage.run(0.3)
    assert b"logged" in fold(stage.oracle.committed)
    assert stage.outcomes[number] == [], f"F5: {stage.outcomes[number]} about what was committed"


def learner_without_a_log(mutant: Mutant | None = None) -> None:
    """Dissertation §4.2.1: who has caught up with nothing does not vote: it would stop all."""
    stage = Stage("abc", mutant)
    stage.found("ab")
    stage.hosts["c"].start()
    member = stage.member("c")
    stage.kill("c")
    stage.ask("a", e.AddLearner(101, member))
    stage.run(0.3)
    said = stage.ask("a", e.Promote(102, member))
    assert isinstance(said, c.Refused), "a learner that has nothing was promoted"


def unknown_commit_survives(mutant: Mutant | None = None) -> None:
    """KIP-101, first history: a follower that has a record and does not know that it is committed
    starts again, and leads: the record is there."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("c", "ab")
    stage.hold(lambda source, to, word: isinstance(word, AppendLog) and not word.records)
    number = stage.write("a", "x", "m2")
    stage.run(0.05)
    assert stage.outcomes[number] == [("done", "m2")] and "x" not in stage["b"].state
    stage.kill("b", power=True)
    stage.start("b")
    stage.kill("a")
    stage.held.clear()
    stage.release()
    stage.heal()
    stage.elect("b")
    stage.run(0.2)
    assert stage.leads() == "b" and stage["b"].state["x"] == "m2"


def group_of_one_waits_for_its_disk(mutant: Mutant | None = None) -> None:
    """etcd issue 14370: a group of one acknowledged before its own sync."""
    stage = Stage("a", mutant)
    stage.hosts["a"].sync_s = lambda: 0.2  # type: ignore[method-assign]
    stage.hosts["a"].start()
    stage["a"].handle(e.Found())
    stage.run(0.3)
    number = stage.write("a", "x", "y")
    stage.run(0.1)
    assert stage.outcomes[number] == []
    stage.run(0.2)
    assert stage.outcomes[number] == [("done", "y")]


def copy_on_one_learner(mutant: Mutant | None = None) -> None:
    """C8, two hosts: an answer waits for the learner while it is in step, and goes on without it
    after three seconds of silence."""
    stage = Stage("ab", mutant)
    stage.found("a", learners="b")
    stage.run(0.5)
    number = stage.write("a", "x", "both")
    stage.run(0.05)
    assert stage.outcomes[number] == [("done", "both")]
    assert stage["b"].log.synced == stage["a"].log.last
    stage.kill("b")
    number = stage.write("a", "x", "alone")
    stage.run(2.0)
    assert stage.outcomes[number] == [], "answered without the learner that is in step"
    stage.run(2.0)
    assert stage.outcomes[number] == [("done", "alone")]


def listener_of_a_slow_voter(mutant: Mutant | None = None) -> None:
    """C8, two hosts: the power of the one that decides fails before its disk has a record. The
    other does not have it either, and takes what comes instead."""
    stage = Stage("ab", mutant)
    stage.found("a", learners="b")
    host, quick = stage.hosts["a"], stage.hosts["a"].sync_s
    host.sync_s = lambda: 5.0  # type: ignore[method-assign]
    number = stage.write("a", "x", "lost")
    stage.run(1.0)
    stage.kill("a", power=True)
    assert stage.outcomes[number] == []
    host.sync_s = quick  # type: ignore[method-assign]
    stage.start("a")
    stage.elect("a")
    number = stage.write("a", "x", "instead")
    stage.run(0.5)
    assert stage.outcomes[number] == [("done", "instead")]
    assert stage["b"].state["x"] == "instead"


def voter_that_lost_a_record(mutant: Mutant | None = None) -> None:
    """C8, two hosts: the disk of the one that decides loses a record that was acknowledged, and the
    other, which was not told that it was, starts when the first leads again. It cuts nothing: there
    is no majority that would have kept the record, so nobody else has it."""
    stage = Stage("ab", mutant)
    stage.found("a", learners="b")
    stage.hold(lambda source, to, word: source == "a" and word.committed > stage["b"]._committed)
    number = stage.write("a", "x", "acknowledged")
    stage.run(0.05)
    assert stage.outcomes[number] == [("done", "acknowledged")]
    stage.held.clear()
    stage.release()
    log, host = stage["a"].log, stage.hosts["a"]
    stage.kill("a")
    stage.kill("b")
    log.cut(log.last - 1)
    log.sync()
    # The disk has lied, so the oracle knows nothing of the record: b alone does.
    stage.oracle.logs.pop(host.member())
    del stage.oracle.committed[log.last :]
    stage.start("a")
    stage.elect("a")
    assert stage["a"].replica.is_leading
    stage.start("b")
    try:
        stage.run(0.5)
    except LogsDiffer as error:
        assert "C8" in str(error), error
    else:
        raise AssertionError("C8: nobody noticed that a record was lost")


def same_vote_twice(mutant: Mutant | None = None) -> None:
    """Raft §5.2: a majority of members, not of messages."""
    stage = Stage("abcde", mutant)
    stage.found("abcde")
    stage.kill("a")
    stage.hold(lambda source, to, word: is_vote(word))
    stage.elect("b")
    stage.hold_back("bcde")
    (vote,) = [held for held in stage.held if held[0] == stage.member("c")][-1:]
    for _ in range(3):
        stage.hosts["b"].receive(*vote)
    assert not stage["b"].replica.is_leading, "C1: one vote was counted more than once"


def vote_of_another_epoch(mutant: Mutant | None = None) -> None:
    """Raft §5.2: a vote of an epoch that is over counts for nothing."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.kill("a")
    stage.hold(lambda source, to, word: is_vote(word))
    stage.elect("b")
    (vote, *_) = [held for held in stage.held if held[0] == stage.member("c")]
    stage.hold(lambda source, to, word: isinstance(word, Vote))
    stage["b"].replica.state.stand_at_s = 0.0
    stage["b"].handle(e.Tick())
    stage.run(0.01)
    assert stage["b"].replica.epoch > vote[2].wanted
    stage.hosts["b"].receive(*vote)
    assert not stage["b"].replica.is_leading


def silence_after_a_restart(mutant: Mutant | None = None, power: bool = False) -> None:
    """C5: electors that start again still keep what they promised: the leader may be answering."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("a", "bc")
    for name in "bc":
        stage.kill(name, power)
        stage.hosts[name].start()
    stage.run(stage.timing.usable_s * 0.7)
    number = stage.read("a", "x")
    assert stage.outcomes[number] == [("done", "")]
    assert stage.leads() == "a"


def silence_after_a_power_cut(mutant: Mutant | None = None) -> None:
    """C5: after a power cut the promise is not known; it was a lease at most."""
    silence_after_a_restart(mutant, power=True)


def slow_disks_of_the_others(mutant: Mutant | None = None) -> None:
    """C3: acknowledged is on disk of a majority, not in its memory."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    for name in "bc":
        stage.hosts[name].sync_s = lambda: 0.7  # type: ignore[method-assign]
    number = stage.write("a", "x", "y")
    stage.run(0.5)
    assert stage.outcomes[number] == []
    stage.run(0.5)
    assert stage.outcomes[number] == [("done", "y")]


def records_of_a_leader_of_the_past(mutant: Mutant | None = None) -> None:
    """Raft §5.1: what an earlier epoch's leader sends is refused, and it is told."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.hold(is_append("a"))
    stage.write("a", "x", "past")
    stage.cut("a", "bc")
    stage.elect("b")
    stage.write("b", "x", "present")
    stage.run(0.2)
    stage.release()
    stage.run(0.2)
    assert stage["c"].state["x"] == "present"


def longer_log_than_the_leader(mutant: Mutant | None = None) -> None:
    """Raft §5.3: a follower with records that its leader has not speaks only of those that both
    have, and takes no word about committed records for its own."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    shared = stage["b"].log.last
    stage.cut("a", "bc")
    stage.write("a", "x", "1")
    stage.write("a", "x", "2")
    stage.run(0.05)
    stage.kill("a")
    stage.start("a")
    stage.heal()
    stage.hold(lambda source, to, word: source == "a")
    beat = AppendLog(2, shared, 1, shared + 1, 1.0)
    stage.hosts["a"].receive(stage.member("b"), stage.member("a"), beat)
    (said,) = [word for _, _, word in stage.held if isinstance(word, Position)]
    assert said.synced == shared, f"C3: reports {said.synced}, {shared} being all that is shared"
    assert stage["a"].replica.committed == shared, "C2: believes in more than it has compared"


def sync_of_what_was_cut(mutant: Mutant | None = None) -> None:
    """C3: the news that records are on disk, which were cut since, says nothing about those that
    stand in their place."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    shared = stage["b"].log.last
    for name in "ac":
        stage.kill(name)
    stage.hold_back("b")
    stage.hold(lambda *_: True)
    replica = stage["b"].replica
    now_s = stage.hosts["b"].clock_s()
    old = AppendLog(2, shared, 1, shared, 1.0, (encode_own(EpochBegan(2, stage.member("a"))), b"o"))
    new = AppendLog(3, shared, 1, shared, 1.0, (encode_own(EpochBegan(3, stage.member("c"))), b"n"))
    replica.handle(e.Received(stage.member("a"), old), now_s)
    replica.handle(e.Received(stage.member("c"), new), now_s)
    replica.handle(e.Synced(shared + 2, era=0), now_s)
    assert replica.synced == shared, "C3: believes a sync of records that are cut"
    replica.handle(e.Synced(shared + 2, era=1), now_s)
    assert replica.synced == shared + 2


def checkpoint_of_a_lonely_leader(mutant: Mutant | None = None) -> None:
    """C7: a leader's state may hold what is not committed; its checkpoint gets no name before."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("a", "bc")
    stage.write("a", "x", "maybe")
    stage.run(0.05)
    stage["a"].begin_checkpoint()
    assert stage["a"].log.read_checkpoint() is None
    stage.heal()
    stage.run(0.3)
    held = stage["a"].log.read_checkpoint()
    assert held is not None and b"maybe" in b"".join(held[3])


def learner_does_not_count(mutant: Mutant | None = None) -> None:
    """C3: what a voter and a learner have is not on a majority of the voters."""
    stage = Stage("abcd", mutant)
    stage.found("abc", learners="d")
    stage.cut("a", "bc")
    number = stage.write("a", "x", "y")
    stage.run(0.3)
    assert stage.outcomes[number] == []


def late_member_gets_a_checkpoint(mutant: Mutant | None = None) -> None:
    """C7: who lacks records that nobody keeps any more gets the checkpoint, then the rest."""
    stage = Stage("abc", mutant)
    stage.found("abc")
    stage.cut("c", "ab")
    for at in range(3):
        for value in range(5):
            stage.write("a", "x", f"{at}-{value}")
        stage.run(0.2)
        stage["a"].begin_checkpoint()
        stage.run(0.1)
    assert stage["a"].log.base > stage["c"].log.last
    stage.heal()
    stage.run(3.0)
    stage.write("a", "x", "last")
    stage.run(0.3)
    assert stage["c"].state == stage["a"].state and stage["c"].state["x"] == "last"


HISTORIES: dict[str, History] = {
    history.__name__: history
    for history in (
        figure_8,
        longer_but_older,
        vote_before_a_restart,
        epoch_before_a_restart,
        loner_comes_back,
        partial_partition,
        later_epoch_is_taken_back,
        member_with_an_emptied_disk,
        two_changes_of_members,
        answers_come_late,
        hand_over_is_given_up,
        hand_over_comes_late,
        hand_over,
        logged_request_is_not_refused,
        learner_without_a_log,
        unknown_commit_survives,
        group_of_one_waits_for_its_disk,
        copy_on_one_learner,
        listener_of_a_slow_voter,
        voter_that_lost_a_record,
        same_vote_twice,
        vote_of_another_epoch,
        silence_after_a_restart,
        silence_after_a_power_cut,
        slow_disks_of_the_others,
        records_of_a_leader_of_the_past,
        longer_log_than_the_leader,
        sync_of_what_was_cut,
        checkpoint_of_a_lonely_leader,
        learner_does_not_count,
        late_member_gets_a_checkpoint,
    )
}
