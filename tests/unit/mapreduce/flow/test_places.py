"""Outputs on their way to their final names."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow.files import LocalFiles, RoutedFiles
from mrstream.mapreduce.flow import places
from mrstream.mapreduce.flow.places import PlaceKeeper


def test_a_final_name_tells_which_place_it_was_though_nobody_marked_it(tmp_path: Path) -> None:
    """P2: the flow was killed between the end of a job and the mark, then again after the move;
    nothing said what had moved, and the step ran once more."""
    keeper = PlaceKeeper(RoutedFiles("file:///"))
    place, final = tmp_path / "work" / "counts.1", tmp_path / "out" / "counts"
    place.mkdir(parents=True)
    (place / "_SUCCESS").touch()
    assert keeper.is_whole(str(place))

    keeper.publish(str(place), str(final))

    assert keeper.mark_of(str(final)) == str(place)
    assert not place.exists()
    keeper.publish(str(place), str(final))  # as after a crash
    assert (final / "_SUCCESS").exists()


class Dead(Exception):
    """The process is gone."""


class DyingFiles(LocalFiles):
    """A file system whose user dies before one of its changes."""

    def __init__(self, dies_at: int) -> None:
        super().__init__(sync=False)
        self._left = dies_at

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def delete(self, url: str) -> None:
        self._count()
        super().delete(url)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Dead


def write(place: Path, text: str) -> None:
    place.mkdir(parents=True)
    (place / "part-0").write_text(text)
    PlaceKeeper(RoutedFiles("file:///")).mark(str(place))


@pytest.mark.parametrize("dies_at", range(1, 6))
def test_where_two_names_cannot_be_exchanged_a_crash_loses_neither_output(
    dies_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1 in the dfs: the old one steps aside, and is gone only when the new one has the name."""
    monkeypatch.setattr(places, "_exchange", lambda one, other: False)
    place, final = tmp_path / "work" / "counts.2", tmp_path / "out" / "counts"
    aside = place.with_name(f"{place.name}.old")
    write(final, "old")
    write(place, "new")

    is_dead = False
    try:
        PlaceKeeper(DyingFiles(dies_at)).publish(str(place), str(final))
    except Dead:
        is_dead = True
    assert is_dead == (dies_at < 5), "each of the four changes is a moment to die at"
    seen = (final / "part-0").read_text() if final.exists() else None
    if seen != "new":
        assert (place / "part-0").read_text() == "new"
        assert ((final if seen else aside) / "part-0").read_text() == "old"

    keeper = PlaceKeeper(RoutedFiles("file:///"))
    keeper.publish(str(place), str(final))
    keeper.remove(str(place))

    assert (final / "part-0").read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "out"], "nothing stays aside"
