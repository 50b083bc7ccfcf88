"""What a client repeats under the same number, and when it may ask a shadow."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mrstream.cluster import retry
from mrstream.cluster.consensus.standing import NotLeader
from mrstream.cluster.errors import (
    CallTimedOut,
    DaemonFault,
    HostUnreachable,
    Speechless,
    Unavailable,
)
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.messages import pack
from mrstream.dfs.client import stale
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import NoServers, NoSuchFile
from mrstream.dfs.protocol import AskShadow, MakeDirectory, ShadowAnswer, Stat, TrashEntry


class Masters:
    """Answers as it is told, one after the other, and remembers under which number it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.finding = Finding({"h1": "127.0.0.1:1", "h2": "127.0.0.1:2"})
        self.numbers: list[int] = []
        self.asked: list[str] = []
        self.shadows: dict[str, Any] = {}
        self.lost: list[HostUnreachable] = []
        """Who could not be reached before the one that answers."""
        self._answers = list(answers)
        self._count = itertools.count(1)

    def next_number(self) -> int:
        return next(self._count)

    def call(self, request: Any, timeout_s: float, number: int = 0, **more: Any) -> Any:
        self.numbers.append(number)
        for error in self.lost:
            more["on_lost"](error)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask_member(self, address: str, request: Any, timeout_s: float) -> Any:
        assert isinstance(request, AskShadow)
        self.asked.append(address)
        answer = self.shadows.get(address, HostUnreachable("gone"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


TRIES = 20
"""So often a client of these tests asks in vain."""


def client_with(masters: Masters, **options: Any) -> DfsClient:
    tries = itertools.count(1)
    policy = RetryPolicy(first_s=0.001, longest_s=0.01, wait=lambda _: next(tries) == TRIES)
    client = DfsClient("127.0.0.1:1", Identity("c", b"s" * 32, "", ""), retry=policy, **options)
    client._connection = masters  # type: ignore[assignment]
    return client


def test_a_change_keeps_its_number_until_a_leader_has_answered() -> None:
    """F5: the one that died may have done it; who does not lead does not know."""
    uncertain = [
        HostUnreachable("died"), NotLeader("follows"), CallTimedOut("hangs"),
        DaemonFault("was given up: the server is stopping"), Speechless("damaged"),
    ]  # fmt: skip
    masters = Masters(*uncertain, None)

    client_with(masters).call(MakeDirectory("/d", "me"))

    assert masters.numbers == [1] * 6


def test_a_change_that_the_leader_refused_is_asked_for_afresh() -> None:
    masters = Masters(NoServers("not now"), None)

    client_with(masters).call(MakeDirectory("/d", "me"))

    assert masters.numbers == [1, 2]


def test_whoever_waits_for_masters_that_are_silent_one_by_one_is_told_before_all_have_been_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three that were frozen took 15 s to be silent: so long nothing was said."""
    masters = Masters(None)
    masters.lost = [HostUnreachable("10.0.0.1:7700: timed out"), HostUnreachable("10.0.0.2:7700")]

    monkeypatch.setattr(retry, "SILENCE_S", 60.0)
    client_with(masters).call(Stat("/f"))
    assert caplog.messages == []

    monkeypatch.setattr(retry, "SILENCE_S", 0.0)
    client_with(masters).call(Stat("/f"))
    (line,) = caplog.messages
    assert line.startswith("the dfs master does not answer (10.0.0.1:7700: timed out): `mrstream")
    assert "trying for another 60 s" in line


class TestShadows:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stale, "LOOK_ROUND_S", 0.0)

    def test_nothing_old_is_read_unless_the_caller_says_how_old(self) -> None:
        masters = Masters(NotLeader("follows"))
        masters.shadows["127.0.0.1:2"] = ShadowAnswer(9, 4.0, pack(()))

        with pytest.raises(Unavailable):
            client_with(masters).trash()

        assert masters.asked == []

    def test_the_first_that_is_fresh_enough_answers_and_is_named(self) -> None:
        masters = Masters(NotLeader("follows"))
        entry = TrashEntry("/a", "/b", 1.0, 2.0)
        masters.shadows["127.0.0.1:1"] = ShadowAnswer(7, 90.0, pack(()))
        masters.shadows["127.0.0.1:2"] = ShadowAnswer(9, 4.0, pack((entry,)))
        told: list[tuple[str, float]] = []
        client = client_with(
            masters, stale_s_max=30.0, on_stale=lambda host, s: told.append((host, s))
        )

        assert client.trash() == (entry,)
        assert told == [("h2", 4.0)]

    def test_what_a_shadow_refuses_is_refused(self) -> None:
        masters = Masters(NotLeader("follows"))
        masters.shadows["127.0.0.1:1"] = NoSuchFile("/f: no such file")

        with pytest.raises(NoSuchFile):
            client_with(masters, stale_s_max=30.0).call(Stat("/f"))

    def test_a_change_is_never_asked_of_a_shadow(self) -> None:
        masters = Masters(NotLeader("follows"))

        with pytest.raises(Unavailable):
            client_with(masters, stale_s_max=30.0).make_directory("/d")

        assert masters.asked == []


def test_changes_are_under_the_fence_given_and_under_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CH-20: what is done under a lock of one's own within another's is fenced by both."""
    asked: list[Any] = []

    class Heard(Masters):
        def call(self, request: Any, timeout_s: float, number: int = 0, **more: Any) -> Any:
            asked.append(request)

    monkeypatch.setenv("MRSTREAM_SEQUENCER", "/ls/local/a:3\n/ls/local/b:1")
    client = client_with(Heard(), fence=("/ls/local/b", 9))

    client.make_directory("/d")
    client.call(MakeDirectory("/d", "me", fence=("mine", 1)))
    client.stat("/d")
    client.check_fences()

    fences = [(ask.fence, *ask.more_fences) for ask in asked if ask.mutates]
    both = (("/ls/local/b", 9), ("/ls/local/a", 3))
    assert fences == [both, (("mine", 1),), both]
