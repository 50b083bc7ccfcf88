"""mapreduce/local/check.py: a job whose result is not its own is told apart from one whose is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mrstream.mapreduce.local import check
from mrstream.mapreduce.local.check import DIFFERENT, SAME, CannotSample, first_difference
from tests.support.attempts import Desk


def checked(directory: Path, **said: str) -> int:
    """The status of a check in this process, which has children of its own."""
    (directory / "in").write_text("".join(f"k{number % 7}\t1\n" for number in range(30)))
    (directory / "room").mkdir()
    return check._Check(Desk(directory, **said).spec, str(directory / "room")).run()


def test_a_job_that_gives_the_same_however_it_is_cut_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, numReduceTasks="2") == SAME

    said = capsys.readouterr().err
    assert "Checking on a sample of 30 lines of 1 file." in said
    assert "one map, no combiner: 30 lines of output" in said and "All runs agree." in said


def test_a_sample_that_is_repeated_for_the_combiner_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(tmp_path, combiner="cat")

    said = capsys.readouterr().err
    assert "sample of 30 lines of 1 file, repeated so that combiners run more than once." in said


def test_a_mapper_that_counts_its_records_is_found_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, mapper="cat -n") == DIFFERENT

    said = capsys.readouterr().err
    assert "the same again: the same" in said
    assert "seven maps: DIFFERENT" in said and "must not carry anything" in said


def test_a_program_that_fails_is_told_with_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, mapper="sh -c 'echo oh dear >&2; exit 3'") == DIFFERENT

    said = capsys.readouterr().err
    assert "one map, no combiner: FAILS" in said and "oh dear" in said


def test_the_first_difference_is_named_by_part_and_line() -> None:
    one = [[b"a\n", b"b\n"], [b"c\n"]]

    assert first_difference(one, [[b"a\n", b"b\n"], [b"c\n"]]) is None
    assert (
        first_difference(one, [[b"a\n", b"x\n"], [b"c\n"]]) == "part 0, line 2: 'x' instead of 'b'"
    )
    assert first_difference(one, [[b"a\n"], [b"c\n"]]) == "part 0 lacks 'b'"
    assert first_difference(one, [[b"a\n", b"b\n"], [b"c\n", b"d\n"]]) == (
        "part 1 has one too many: 'd'"
    )
    assert "…" in str(first_difference([[b"y"]], [[b"x" * 500]]))


def test_a_sample_is_cut_at_the_end_of_a_line() -> None:
    def sample(data: bytes, limit: int) -> bytes:
        return check._read_lines(io.BytesIO(data), limit)

    assert sample(b"one\ntwo\nthree\n", 9) == b"one\ntwo\n"
    assert sample(b"one\ntwo", 100) == b"one\ntwo"
    assert sample(b"x" * 50 + b"\nnext\n", 10) == b"x" * 50 + b"\n", "a first line is read whole"


def test_a_file_that_cannot_be_cut_is_read_whole_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "WHOLE_BYTES_MAX", 4)

    assert check._read_whole(io.BytesIO(b"abcd"), "in.gz") == b"abcd"
    with pytest.raises(CannotSample, match=r"in\.gz: no sample can be cut"):
        check._read_whole(io.BytesIO(b"abcde"), "in.gz")
