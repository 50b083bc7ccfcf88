"""One retry policy, for `Unavailable` only."""

from __future__ import annotations

import math
import re

import pytest

from mrstream.cluster import retry
from mrstream.cluster.errors import HostUnreachable, Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.addresses import why_wait


class Time:
    """Passes only while somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(retry, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_it_tries_until_the_time_is_over_and_then_raises_the_last_error(passing: Time) -> None:
    policy = RetryPolicy(total_s=1.0, first_s=0.01, longest_s=0.05, wait=passing.sleep)
    tries = 0

    with pytest.raises(Unavailable) as raised:
        for attempt in policy.attempts():
            tries += 1
            attempt.failed(Unavailable(f"try {tries}"))

    assert str(raised.value) == f"try {tries}"
    assert 20 <= tries <= 45, "a wait is 0.025 to 0.05 s"
    assert 100.94 < passing.now_s < 101.0


def test_no_time_means_one_try() -> None:
    with pytest.raises(Unavailable, match="once"):
        for attempt in RetryPolicy(total_s=0.0).attempts():
            assert attempt.number == 1
            attempt.failed(Unavailable("once"))


def test_whoever_waits_is_told_why_once(passing: Time, caplog: pytest.LogCaptureFixture) -> None:
    policy = RetryPolicy(total_s=20.0, wait=passing.sleep)
    with pytest.raises(Unavailable, match="refused"):
        for attempt in policy.attempts():
            attempt.failed(Unavailable("refused"), "the master does not answer")

    (line,) = caplog.messages
    assert re.fullmatch("the master does not answer; trying for another 1[67] s", line)


def test_a_short_silence_is_not_worth_a_word(
    passing: Time, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unavailable, match="refused"):
        for attempt in RetryPolicy(total_s=2.9, wait=passing.sleep).attempts():
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
