"""One retry policy, for `Unavailable` only."""

from __future__ import annotations

import math
import time

import pytest

from mrstream.cluster import retry
from mrstream.cluster.errors import HostUnreachable, Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.addresses import why_wait


def test_it_tries_until_the_time_is_over_and_then_raises_the_last_error() -> None:
    policy = RetryPolicy(total_s=1.0, first_s=0.01, longest_s=0.05)
    began_s = time.monotonic()
    tries = 0

    with pytest.raises(Unavailable, match=r"try 3|try [4-9]|try [1-9][0-9]"):
        for attempt in policy.attempts():
            tries += 1
            attempt.failed(Unavailable(f"try {tries}"))

    assert 4 <= tries <= 200
    assert time.monotonic() - began_s < 30


def test_no_time_means_one_try() -> None:
    with pytest.raises(Unavailable, match="once"):
        for attempt in RetryPolicy(total_s=0.0).attempts():
            assert attempt.number == 1
            attempt.failed(Unavailable("once"))


def test_whoever_waits_is_told_why_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "SILENCE_S", 0.05)
    with pytest.raises(Unavailable, match="refused"):
        for attempt in RetryPolicy(total_s=0.4, first_s=0.01, longest_s=0.02).attempts():
            attempt.failed(Unavailable("refused"), "the master does not answer")

    (line,) = caplog.messages
    assert line.startswith("the master does not answer; trying for another ")


def test_a_short_silence_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Unavailable, match="refused"):
        for attempt in RetryPolicy(total_s=0.1, first_s=0.01).attempts():
            attempt.failed(Unavailable("refused"), "the master does not answer")
    assert caplog.messages == []


def test_a_wait_that_is_cut_short_is_the_last() -> None:
    """A master that stops does not leave a thread behind that tries for ever."""
    waits: list[float] = []

    def cut_short(wait_s: float) -> bool:
        waits.append(wait_s)
        return len(waits) == 3

    with pytest.raises(Unavailable, match="try 3"):
        for attempt in RetryPolicy(math.inf, first_s=1.0, longest_s=1.0, wait=cut_short).attempts():
            attempt.failed(Unavailable(f"try {attempt.number}"))

    assert len(waits) == 3 and all(0.5 <= wait_s <= 1.0 for wait_s in waits)


@pytest.mark.parametrize(
    "error, said",
    [
        (HostUnreachable("h1:7700: timed out"), "does not answer (h1:7700: timed out): `mrstream"),
        (Unavailable("no chunkserver has room"), "cannot do it yet (no chunkserver has room): "),
    ],
)
def test_one_who_waits_is_told_whether_the_master_answers(error: Unavailable, said: str) -> None:
    """Nobody looks for a dead daemon where a disk is full."""
    assert why_wait("dfs", error).startswith(f"the dfs master {said}")
