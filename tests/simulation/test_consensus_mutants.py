"""The mutant gate: every brain and shell that is wrong on purpose is caught, each in its history.

A mutant that no longer raises means that a rule can be left out unseen: the suite is red then.
"""

from __future__ import annotations

import time

import pytest

from tests.simulation.consensus.histories import HISTORIES
from tests.simulation.consensus.mutants import ALL

CAUGHT_BY = {
    "votes for any log": ("longer_but_older", "C2"),
    "votes for the longer log, whatever its epoch": ("longer_but_older", "C2"),
    "makes no promise": ("hand_over_is_given_up", "C5"),
    "sends its vote before it is on disk": ("vote_before_a_restart", "C1"),
    "forgets its vote when it starts again": ("vote_before_a_restart", "C1"),
    "forgets its epoch when it starts again": ("epoch_before_a_restart", "C1"),
    "keeps no silence after it starts again": ("silence_after_a_restart", "C5"),
    "keeps no silence after its host starts again": ("silence_after_a_power_cut", "C5"),
    "counts the same vote twice": ("same_vote_twice", "C1"),
    "takes a vote of another epoch": ("vote_of_another_epoch", "C1"),
    "asks nobody before it stands": ("loner_comes_back", "deposes"),
    "takes an old release for a new one": ("hand_over_is_given_up", "C5"),
    "commits records of older epochs by counting": ("figure_8", "C2"),
    "counts itself before its disk has it": ("group_of_one_waits_for_its_disk", "C3"),
    "counts learners as voters": ("learner_does_not_count", "C3"),
    "needs half of the voters, not more": ("longer_but_older", "C3"),
    "sends to a listener what its own disk does not have": ("listener_of_a_slow_voter", "C8"),
    "a listener cuts what its voter has lost": ("voter_that_lost_a_record", "C8: nobody"),
    "reports what it has written, not what is synced": ("slow_disks_of_the_others", "C3"),
    "reports what is synced, the leader's or not": ("longer_log_than_the_leader", "C3"),
    "believes what is committed beyond what it has compared": ("longer_log_than_the_leader", "C2"),
    "cuts what follows the message, conflict or not": ("partial_partition", "C2"),
    "takes records without comparing the one before": ("longer_but_older", "C2"),
    "takes records of a leader of the past": ("records_of_a_leader_of_the_past", "C1"),
    "believes a sync from before a cut": ("sync_of_what_was_cut", "C3"),
    "counts its lease from the answer": ("answers_come_late", "C4"),
    "answers without a lease": ("hand_over_comes_late", "C4"),
    "answers on after it gave its lease up": ("hand_over", "C4"),
    "counts beats from before the release": ("hand_over_comes_late", "C4"),
    "says that it does not lead about a request that is logged": (
        "logged_request_is_not_refused",
        "F5",
    ),
    "a deposed leader's state lives on": ("longer_but_older", "M2"),
    "changes members before a record of its epoch is committed": ("two_changes_of_members", "C6"),
    "changes members twice at a time": ("member_with_an_emptied_disk", "C6"),
    "promotes a learner that has nothing": ("learner_without_a_log", "promoted"),
    "an emptied disk keeps its name": ("member_with_an_emptied_disk", "C2"),
    "gives a checkpoint its name before it is committed": ("checkpoint_of_a_lonely_leader", "C7"),
}


def test_every_mutant_has_its_history() -> None:
    assert sorted(CAUGHT_BY) == sorted(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_wrong_brain_is_caught(name: str) -> None:
    history, word = CAUGHT_BY[name]
    began_s = time.process_time()

    with pytest.raises(AssertionError, match=word):
        HISTORIES[history](ALL[name])

    assert time.process_time() - began_s < 3.0, "a mutant is to be caught in three seconds"
