"""Outputs on their way to their final names."""

from __future__ import annotations

from pathlib import Path

from mrstream.mapreduce.dataflow.files import files_for
from mrstream.mapreduce.flow.places import PlaceKeeper


def test_a_final_name_tells_which_place_it_was_though_nobody_marked_it(tmp_path: Path) -> None:
    """P2: the flow was killed between the end of a job and the mark, then again after the move;
    nothing said what had moved, and the step ran once more."""
    keeper = PlaceKeeper(files_for("file:///"))
    place, final = tmp_path / "work" / "counts.1", tmp_path / "out" / "counts"
    place.mkdir(parents=True)
    (place / "_SUCCESS").touch()
    assert keeper.is_whole(str(place))

    keeper.publish(str(place), str(final))

    assert keeper.mark_of(str(final)) == str(place)
    assert not place.exists()
    keeper.publish(str(place), str(final))  # as after a crash
    assert (final / "_SUCCESS").exists()
