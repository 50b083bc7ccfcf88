"""mapreduce/local/repeat.py: a kept attempt runs again, and the record that fails it is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mrstream.mapreduce import history
from mrstream.mapreduce.attempt import attempt as attempts
from mrstream.mapreduce.attempt.attempt import failure_of, run_map
from mrstream.mapreduce.local import repeat
from mrstream.mapreduce.local.repeat import CannotNarrow
from mrstream.mapreduce.program.errors import CommandFailed
from tests.support.attempts import Desk

LINES = [f"line {number}" for number in range(40)]
REFUSES = 'sh -c \'while read line; do [ "$line" != "line 23" ] || exit 4; echo $line; done\''


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    # Its own process has children of its own.
    monkeypatch.setattr(repeat, "kill_descendants", lambda pid: None)
    monkeypatch.setattr(repeat, "become_subreaper", lambda: None)
    yield


def kept(directory: Path, mapper: str) -> str:
    """A map that fails and is kept, as an attempt's process does it; its id."""
    record = history.begin()
    desk = Desk(directory, mapper=mapper, D="mapreduce.job.maps=1")
    desk.spec = msgspec.structs.replace(desk.spec, job_id=record.job_id)
    (split,) = desk.splits("".join(f"{line}\n" for line in LINES))
    name = str(record.job_id).replace("job_", "attempt_") + "_m_000000_0"
    place = desk.attempt("m_000000", 1, split=split, segment_path=str(directory / "segment")).order
    order = msgspec.structs.replace(
        place, attempt_id=name, keep_directory=record.kept_directory(name)
    )
    attempt = attempts.Attempt(desk.spec, order, lambda message: None)
    with pytest.raises(CommandFailed) as failed:
        run_map(attempt)
    attempts._keep(attempt, failure_of(attempt, failed.value))
    attempt.log.close()
    record.write_spec(desk.spec)
    return name


def test_it_fails_again_on_the_same_input_with_its_output_shown(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    name = kept(tmp_path, REFUSES)

    assert repeat.repeat(name) == 1

    out, said = capfdbinary.readouterr()
    assert out.decode().splitlines() == LINES[:23]
    assert f"Repeating {name}".encode() in said and b"failed with code 4" in said.lower()


def test_it_succeeds_when_what_was_wrong_is_mended(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "broken").touch()
    name = kept(tmp_path, f"sh -c '[ ! -e {tmp_path}/broken ] || exit 5; cat'")
    (tmp_path / "broken").unlink()

    assert repeat.repeat(name) == 0

    out, said = capfdbinary.readouterr()
    assert out.decode().splitlines() == LINES and b"It succeeds this time." in said
    with pytest.raises(CannotNarrow, match="does not fail this time"):
        repeat.bisect(name)


def test_the_record_that_makes_it_fail_is_found(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    name = kept(tmp_path, REFUSES)

    assert repeat.bisect(name) == 0

    out, said = capfdbinary.readouterr()
    assert out == b"line 23\n"
    start = sum(len(line) + 1 for line in LINES[:23])
    assert b"Record 23 alone makes it fail, of 40" in said
    assert f"bytes {start} to {start + 8} of what".encode() in said
    assert f"/in, at byte {start}".encode() in said, "in the user's own file"


def test_a_program_that_fails_without_input_is_said_to(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert repeat.bisect(kept(tmp_path, "sh -c 'exit 7'")) == 0

    assert b"It fails without any input" in capfdbinary.readouterr()[1]
