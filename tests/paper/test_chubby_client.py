"""Does the client do what the Chubby paper says? Its session and cache, without IO (§2.7, §2.8)."""

from __future__ import annotations

from mrstream.lock import protocol as p
from mrstream.lock.client.cache import Cache
from mrstream.lock.client.session import (
    Ended,
    Expired,
    FailedOver,
    Jeopardy,
    News,
    Safe,
    Session,
    Standing,
    Told,
)
from mrstream.lock.errors import CellFailingOver, SessionExpired, WrongEpoch

F = "/ls/local/f"


def session(sent_at_s: float = 0.0) -> Session:
    return Session(p.SessionGranted(7, 3, 12.0, 45.0), sent_at_s)


def put(cache: Cache, key: str, value: object) -> None:
    cache.end(cache.begin(key), value)


class TestLease:
    def test_2_8_the_client_counts_its_lease_from_when_it_asked_and_shorter(self) -> None:
        """CH-33: the answer's flight and the clocks' rates are on the safe side."""
        ours = session(sent_at_s=100.0)
        assert ours.lease_end_s < 112.0

        ours.kept(ours.keep_alive(), p.Kept(21.0), sent_at_s=101.0, now_s=110.0)

        assert 121.0 < ours.lease_end_s < 122.0

    def test_2_8_an_answer_without_a_lease_does_not_extend_it(self) -> None:
        ours = session()

        ours.kept(ours.keep_alive(), p.Kept(0.0), sent_at_s=5.0, now_s=6.0)

        assert ours.lease_end_s < 12.0

    def test_2_8_a_lease_only_ever_gets_longer(self) -> None:
        """CH-30: a late answer does not take anything back."""
        ours = session()
        ours.kept(ours.keep_alive(), p.Kept(60.0), sent_at_s=1.0, now_s=2.0)

        ours.kept(ours.keep_alive(), p.Kept(12.0), sent_at_s=2.0, now_s=3.0)

        assert ours.lease_end_s > 60.0

    def test_2_8_lease_over_is_jeopardy_with_the_cache_empty_and_off(self) -> None:
        """CH-34."""
        ours = session()
        put(ours.cache, F, "contents")

        assert ours.pass_time(11.8) == []
        assert ours.pass_time(12.0) == [Jeopardy()]

        assert ours.cache.get(F) is None
        put(ours.cache, F, "contents")
        assert ours.cache.get(F) is None

    def test_2_8_contact_within_the_grace_is_safe_and_the_cache_is_on(self) -> None:
        """CH-34, CH-38: kill the leader, elect for ten seconds, nothing is lost."""
        ours = session()
        ours.pass_time(20.0)

        news = ours.kept(ours.keep_alive(), p.Kept(12.0), sent_at_s=22.0, now_s=22.5)

        assert news == [Safe()] and ours.standing is Standing.SAFE
        put(ours.cache, F, "contents")
        assert ours.cache.get(F) == "contents"

    def test_2_8_an_answer_whose_lease_is_over_already_does_not_save(self) -> None:
        """CH-33."""
        ours = session()
        ours.pass_time(20.0)

        assert ours.kept(ours.keep_alive(), p.Kept(12.0), sent_at_s=10.0, now_s=30.0) == []
        assert ours.standing is Standing.JEOPARDY

    def test_2_8_after_the_grace_it_is_expired_for_good(self) -> None:
        """CH-34, CH-35: what is lost is a suffix; a late answer does not bring it back."""
        ours = session()
        asked = ours.keep_alive()

        assert ours.pass_time(57.0) == [Jeopardy(), Expired()]
        assert ours.kept(asked, p.Kept(99.0), sent_at_s=56.0, now_s=58.0) == []
        assert ours.pass_time(59.0) == []

        assert ours.standing is Standing.EXPIRED

    def test_2_8_a_client_that_slept_through_everything_knows_when_it_wakes(self) -> None:
        ours = session()

        assert ours.pass_time(1e6) == [Jeopardy(), Expired()]

    def test_2_8_told_that_it_is_over_it_is_over(self) -> None:
        ours = session()

        assert ours.refused(SessionExpired("session 7 is over")) == [Expired()]

    def test_2_8_an_idle_session_is_ended_without_harm(self) -> None:
        """CH-36."""
        ours = session()

        assert ours.kept(ours.keep_alive(), p.Kept(0.0, (), ended=True), 1.0, 2.0) == [Ended()]
        assert ours.is_over


class TestEvents:
    def test_2_8_events_are_acknowledged_with_the_next_keep_alive_and_heard_once(self) -> None:
        """CH-32."""
        ours = session()
        events = (p.Happened(1, p.CONTENTS_CHANGED, F, (3, 1)), p.Happened(2, p.INVALIDATE, F))
        put(ours.cache, F, "contents")
        asked = ours.keep_alive()

        news = ours.kept(asked, p.Kept(12.0, events), 1.0, 1.1)
        again = ours.kept(asked, p.Kept(0.0, events), 1.0, 1.2)

        assert news == [Told(events[0])] and again == []
        assert ours.keep_alive().acked == 2
        assert ours.cache.get(F) is None

    def test_2_9_a_new_leaders_epoch_is_adopted_and_its_event_empties_the_cache(self) -> None:
        """CH-37."""
        ours = session()
        put(ours.cache, F, "contents")
        asked = ours.keep_alive()
        ours.kept(asked, p.Kept(12.0, (p.Happened(9, p.CONTENTS_CHANGED, F),)), 1.0, 1.1)

        assert ours.refused(WrongEpoch("the epoch is 4", epoch=4)) == []
        assert ours.keep_alive() == p.KeepAlive(7, 4, 0)
        told = p.Kept(12.0, (p.Happened(1, p.FAILED_OVER),))
        news: list[News] = ours.kept(ours.keep_alive(), told, 2.0, 2.1)

        assert news == [FailedOver()] and ours.cache.get(F) is None
        assert ours.keep_alive().acked == 1

    def test_2_9_a_late_word_of_the_last_leader_is_not_heard(self) -> None:
        ours = session()
        asked = ours.keep_alive()
        ours.refused(WrongEpoch("", epoch=4))

        assert ours.kept(asked, p.Kept(12.0, (p.Happened(1, p.FAILED_OVER),)), 1.0, 1.1) == []
        assert ours.keep_alive().acked == 0

    def test_2_9_an_epoch_of_before_or_none_is_not_adopted(self) -> None:
        ours = session()

        for epoch in (2, "9", None):
            ours.refused(WrongEpoch("", epoch=epoch))
        ours.refused(CellFailingOver(""))

        assert ours.epoch == 3 and ours.standing is Standing.SAFE


class TestCache:
    def test_2_7_an_invalidation_beats_an_answer_that_is_on_its_way(self) -> None:
        """CH-27, L4: the two may come in either order."""
        cache = Cache()
        reading = cache.begin(F)

        cache.invalidate(F)
        cache.end(reading, "old")

        assert cache.get(F) is None

    def test_2_7_emptying_beats_all_answers_that_are_on_their_way(self) -> None:
        cache = Cache()
        readings = [cache.begin(F), cache.begin("/ls/local/g")]

        cache.empty()
        for reading in readings:
            cache.end(reading, "old")

        assert len(cache) == 0

    def test_2_7_jeopardy_and_back_beats_them_too(self) -> None:
        cache = Cache()
        before = cache.begin(F)
        cache.switch(False)
        meanwhile = cache.begin(F)
        cache.switch(True)

        cache.end(before, "old")
        cache.end(meanwhile, "old")

        assert cache.get(F) is None

    def test_2_7_absence_is_an_entry_like_any_other(self) -> None:
        """CH-27, CH-45."""
        cache = Cache()
        nothing = p.Seen(None, b"", True)

        put(cache, F, nothing)

        assert [cache.get(F) for _ in range(1000)] == [nothing] * 1000 and cache.hits == 1000

    def test_4_5_a_cache_has_a_size(self) -> None:
        cache = Cache(entries_max=3, bytes_max=100)
        for number in range(5):
            put(cache, f"/ls/local/{number}", number)
        assert len(cache) == 3 and cache.get("/ls/local/0") is None

        cache.end(cache.begin("/ls/local/large"), "x", 101)

        assert len(cache) == 0
