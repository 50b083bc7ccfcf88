"""Attempts in words (view/attempts.py)."""

from __future__ import annotations

import msgspec

from mrstream.mapreduce.snapshot import AttemptRow, JobBoard, JobRow
from mrstream.view.attempts import COLUMNS, about, attempt_cells, listed, repeat_command

ATTEMPT = AttemptRow(
    "attempt_17_0007_m_000003_0", "m000003", "h4", "running", "rack", 100.0, 0.0, 0.5, "map",
    12_345, 64 << 20, 0, "reading line 17",
)  # fmt: skip


def changed(**more: object) -> AttemptRow:
    return msgspec.structs.replace(ATTEMPT, **more)


def test_an_attempt_has_a_cell_for_every_column() -> None:
    cells = [cell.text for cell in attempt_cells(ATTEMPT, now_s=130.0)]

    assert cells == [
        "▸ running", "m_000003_0", "h4", "rack", "map", " 50%", "30s", "12.3k", "64M",
        "reading line 17",
    ]  # fmt: skip
    assert len(cells) == len(COLUMNS)


def test_of_what_went_wrong_the_reason_stands_in_the_place_of_the_status() -> None:
    for state in ("failed", "killed"):
        row = changed(state=state, diagnosis="exit code 1\nsee the log", finished_at_s=110.0)
        cells = attempt_cells(row, now_s=999.0)

        assert (cells[-1].text, cells[0].loud, cells[6].text) == ("exit code 1", True, "10s")


def test_running_attempts_come_first_then_what_went_wrong_the_latest_first() -> None:
    board = JobBoard(JobRow("job_17_0007"))
    for key, state, started_at_s in [
        ("a", "succeeded", 1.0),
        ("b", "failed", 2.0),
        ("c", "running", 3.0),
        ("d", "running", 4.0),
        ("e", "killed", 5.0),
    ]:
        board.attempts.put(changed(key=key, state=state, started_at_s=started_at_s))

    assert "".join(row.key for row in listed(board)) == "dcbea"
    assert [row.key for row in listed(board, wanted="KILL")] == ["e"]


def test_what_is_known_of_an_attempt_and_how_to_repeat_it() -> None:
    told = about(changed(diagnosis="exit code 1\nsee the log"), now_s=130.0)

    assert told == [
        "running on h4  map   50%  30s  12.3k records  64M in",
        "status: reading line 17",
        "exit code 1",
    ]
    assert len(about(changed(status=""), now_s=130.0)) == 1
    assert repeat_command(ATTEMPT.key) == "mrstream -repeat attempt_17_0007_m_000003_0"
