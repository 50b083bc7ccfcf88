"""mapreduce/worker/logs.py: what a worker keeps of attempts, read in pieces by whoever may ask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrstream.mapreduce.attempt.attempt_report import KEPT_INPUT, KEPT_ORDER, KEPT_SEGMENT
from mrstream.mapreduce.protocol import LogPiece, ReadKept, ReadLog
from mrstream.mapreduce.worker.logs import KEPT_S_MAX, PIECE_BYTES, NoSuchLog, WorkerLogs

ATTEMPT, OTHER = "attempt_1_0001_m_000000_0", "attempt_1_0002_m_000000_0"


@pytest.fixture
def logs(tmp_path: Path) -> WorkerLogs:
    return WorkerLogs(str(tmp_path))


def write(directory: str, name: str, data: bytes) -> None:
    os.makedirs(directory, exist_ok=True)
    Path(directory, name).write_bytes(data)


def read_all(logs: WorkerLogs, stream: str = "stderr") -> bytes:
    """As `-logs` reads: from where the last piece ended, until there is none."""
    found = b""
    while piece := logs.read_log(ReadLog(ATTEMPT, stream, len(found))).data:
        assert len(piece) <= PIECE_BYTES
        found += piece
    return found


def test_a_log_comes_in_pieces_and_what_is_added_meanwhile_comes_too(logs: WorkerLogs) -> None:
    data = bytes(range(256)) * (PIECE_BYTES // 256) + b"the end"
    write(logs.log_directory(ATTEMPT), "stderr", data)

    first = logs.read_log(ReadLog(ATTEMPT, "stderr", 0))
    with open(os.path.join(logs.log_directory(ATTEMPT), "stderr"), "ab") as log:
        log.write(b", and more")

    assert first == LogPiece(data[:PIECE_BYTES], len(data))
    assert read_all(logs) == data + b", and more"
    assert logs.read_log(ReadLog(ATTEMPT, "stderr", 1 << 40)).data == b"", "beyond its end"


def test_the_same_question_again_gets_the_same_answer(logs: WorkerLogs) -> None:
    """An answer may be lost: nothing here remembers who has read how far."""
    write(logs.log_directory(ATTEMPT), "stderr", b"oh dear")

    asked = ReadLog(ATTEMPT, "stderr", 3)
    assert logs.read_log(asked) == logs.read_log(asked) == LogPiece(b"dear", 7)


def test_a_log_that_was_never_written_is_empty_and_one_that_is_not_kept_is_named(
    logs: WorkerLogs,
) -> None:
    write(logs.log_directory(ATTEMPT), "stdout", b"x")

    assert read_all(logs, "stderr") == b""
    with pytest.raises(NoSuchLog, match=f"no logs of {OTHER} are kept here"):
        logs.read_log(ReadLog(OTHER, "stderr", 0))


def test_what_was_kept_of_a_failed_attempt_is_read_by_its_names_only(logs: WorkerLogs) -> None:
    write(logs.kept_directory(ATTEMPT), KEPT_INPUT, b"a bad record")
    write(logs.kept_directory(ATTEMPT), "other", b"secret")

    assert logs.read_kept(ReadKept(ATTEMPT, KEPT_INPUT, 2)).data == b"bad record"
    assert logs.read_kept(ReadKept(ATTEMPT, KEPT_SEGMENT, 0)) == LogPiece(b"", 0)
    with pytest.raises(NoSuchLog, match="'other' is not kept"):
        logs.read_kept(ReadKept(ATTEMPT, "other", 0))
    with pytest.raises(NoSuchLog, match=f"nothing is kept of {OTHER}"):
        logs.read_kept(ReadKept(OTHER, KEPT_ORDER, 0))


@pytest.mark.parametrize("name", ["..", "../../etc", "attempt_1_0001_m_000000_0/../x", ""])
def test_no_name_leads_out_of_the_directory(logs: WorkerLogs, name: str) -> None:
    with pytest.raises(NoSuchLog):
        logs.log_directory(name)
    with pytest.raises(NoSuchLog):
        logs.kept_directory(name)


def test_no_stream_leads_out_of_it_either(logs: WorkerLogs) -> None:
    write(logs.log_directory(ATTEMPT), "stderr", b"x")

    with pytest.raises(NoSuchLog, match="is not a log: there are stderr, stdout"):
        logs.read_log(ReadLog(ATTEMPT, f"../{ATTEMPT}/stderr", 0))


def test_logs_and_kept_attempts_of_a_week_ago_go_and_others_stay(logs: WorkerLogs) -> None:
    now_s = 10 * KEPT_S_MAX
    for attempt_id, age_s in ((ATTEMPT, KEPT_S_MAX + 1), (OTHER, KEPT_S_MAX - 1)):
        for place in (logs.log_directory(attempt_id), logs.kept_directory(attempt_id)):
            write(place, KEPT_ORDER, b"x")
            os.utime(os.path.dirname(place), (now_s - age_s, now_s - age_s))

    logs.prune(now_s)
    logs.prune(now_s)

    for place in (logs.log_directory, logs.kept_directory):
        assert (os.path.exists(place(ATTEMPT)), os.path.exists(place(OTHER))) == (False, True)


def test_what_is_kept_is_the_daemons_alone_also_in_a_directory_of_before(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o755)

    WorkerLogs(str(tmp_path))

    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in ("logs", "kept")] == [0o700] * 2
