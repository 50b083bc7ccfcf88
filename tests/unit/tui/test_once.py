"""One picture as text, for scripts and for programs (tui/once.py)."""

from __future__ import annotations

import json

from mrstream.tui.once import json_picture, plain_picture
from mrstream.view.picture import Picture
from tests.support import tui_states
from tests.support.tui_states import NOW_S, Recorded


def seen(source: Recorded) -> Picture:
    picture = Picture(cluster="demo")
    picture.see_groups(source.groups(), NOW_S)
    picture.see_cluster(source.snapshot(0, 0))
    picture.storage = source.storage()
    return picture


def test_every_master_has_a_line_and_every_trouble_one_that_a_script_finds() -> None:
    lines = plain_picture(seen(tui_states.failing()), NOW_S).splitlines()

    first = lines.index("MASTER  HOST  STATE                FOR")
    assert lines[first + 1 : first + 10] == [
        "dfs     h1    does not answer      -",
        "dfs     h2    leader epoch 8       3:07",
        "dfs     h3    shadow 0.0 s behind  -",
        "jobs    h1    shadow 0.0 s behind  -",
        "jobs    h2    leader epoch 3       3:07",
        "jobs    h3    shadow 0.0 s behind  -",
        "lock    h1    does not answer      -",
        "lock    h2    shadow 34 s behind   -",
        "lock    h3    does not answer      -",
    ]
    assert [line for line in lines if line.startswith("Trouble: ")] == [
        "Trouble: dfs: h1 does not answer: the next failure stops writes",
        "Trouble: lock: no quorum (1 of 3): changes are refused",
    ]


def test_a_cluster_that_is_well_has_no_trouble() -> None:
    assert "Trouble" not in plain_picture(seen(tui_states.busy()), NOW_S)


def test_programs_are_told_of_groups_as_status_tells_them() -> None:
    state = tui_states.failing()

    groups = json.loads(json_picture(seen(state), NOW_S))["groups"]

    assert groups == {name: view.document() for name, view in state.led.items()}
    assert groups["dfs"]["members"]["h1"]["state"] == "silent"
