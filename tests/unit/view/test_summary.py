"""The cluster at a glance (view/summary.py)."""

from __future__ import annotations

from dataclasses import replace

from mrstream.view.picture import ChunkCounts, Picture
from mrstream.view.summary import parts, silence
from tests.support import tui_states
from tests.support.tui_states import NOW_S, Recorded


def seen(source: Recorded) -> Picture:
    picture = Picture(cluster="demo")
    picture.see_cluster(source.snapshot(0, 0))
    picture.storage = source.storage()
    return picture


def test_what_is_wrong_is_never_left_out() -> None:
    told = parts(seen(tui_states.failing()))

    wrong = [part.cell.text for part in told if part.rank == 0]

    assert wrong == ["9/10", "✗ 2 missing", "✗ 1 corrupt", "✗ 120 under-replicated"]
    assert all(part.cell.loud for part in told if part.rank == 0)
    assert "↻ 8 repairing" in [part.cell.text for part in told]


def test_a_cluster_that_is_well_says_so_in_a_word() -> None:
    picture = seen(tui_states.busy())
    picture.storage = replace(picture.storage, counts=ChunkCounts(total=4812))

    told = [part.cell.text for part in parts(picture)]

    assert "✓ 4,812 chunks" in told


def test_a_cluster_without_chunkservers_has_no_storage_to_tell_of() -> None:
    assert [part.label for part in parts(Picture())] == ["hosts", "slots", "jobs"]


def test_silence_is_told_with_its_age_and_its_reason() -> None:
    picture = Picture(lost_reason="h1:7703 does not answer", lost_at_s=NOW_S - 12)

    assert silence(picture, NOW_S) == "✗ NO ANSWER for 12s: h1:7703 does not answer"
    assert silence(Picture(), NOW_S) == ""


def test_a_master_with_fewer_copies_of_its_log_than_wanted_is_told_of() -> None:
    picture = seen(tui_states.busy())
    picture.storage = replace(picture.storage, log_copies=(1, 2))

    assert "✗ master's log: 1/2 copies" in [p.cell.text for p in parts(picture) if p.rank == 0]
    picture.storage = replace(picture.storage, log_copies=(2, 2))
    assert not [p for p in parts(picture) if "log" in p.cell.text]
