"""Files that cannot be read, odd locales, full disks: a line that names them, no traceback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.local_jobs import MRSTREAM, Desk

# Root without the right to read everything: as any user before a file of another one.
AS_A_USER = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)
# A disk of 3 MiB on the directory that comes first; gone with the process.
ON_A_SMALL_DISK = (
    "unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=3m none "$0" && exec "$@"',
)  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("in", "one\ntwo\n")
    return desk


def ran(desk: Desk, before: tuple[str, ...], *words: str, **more: str) -> tuple[int, str]:
    """Give the exit status, and all that was said."""
    done = subprocess.run(
        [*before, *MRSTREAM, *words],
        cwd=desk.cwd,
        env={**desk.environment(), **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    said = done.stdout.decode("utf-8", "replace")
    assert "Traceback" not in said, said
    return done.returncode, said


@pytest.mark.parametrize("path", ["shut", "shut/x", "shut/*"])
def test_an_input_directory_that_may_not_be_read_is_named(desk: Desk, path: str) -> None:
    """Hadoop ends with 5 where the input cannot be listed."""
    desk.write("shut/x", "a\n")
    os.chmod(desk.cwd / "shut", 0)
    try:
        status, said = ran(desk, AS_A_USER, "-input", path, "-mapper", "cat")
    finally:
        os.chmod(desk.cwd / "shut", 0o700)

    assert status == 5
    assert "Error Launching job : the input cannot be read: [Errno 13] Permission denied" in said
    assert f"{desk.cwd}/shut" in said


@pytest.mark.parametrize(
    "words",
    [
        ["-input", "in", "-mapper", "cat"],
        ["dfs", "-ls", "/"],
        ["job", "-list"],
        ["top", "--once"],
        ["cluster", "status"],
    ],
)
def test_a_state_directory_that_may_not_be_read_is_named(desk: Desk, words: list[str]) -> None:
    desk.home.mkdir(mode=0)

    status, said = ran(desk, AS_A_USER, *words)

    assert status == 1
    assert "which cluster is current cannot be read" in said and str(desk.home) in said


def test_names_beyond_ascii_do_in_a_c_locale(desk: Desk) -> None:
    desk.write("ï é", "one\n")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    status, said = ran(desk, (), "-input", "ï é", "-mapper", "cat", "-output", "o é", **plain)

    assert status == 0, said
    assert (desk.cwd / "o é" / "part-00000").read_bytes() == b"one\t\n"


@pytest.mark.parametrize("full", ["home", "out"])
def test_a_full_disk_is_named(desk: Desk, full: str) -> None:
    desk.write("in", b"".join(b"%d some words of a line\n" % line for line in range(200_000)))
    small = desk.home if full == "home" else desk.out
    small.mkdir()

    status, said = ran(
        desk, (*ON_A_SMALL_DISK, str(small)),
        "-input", "in", "-mapper", "cat", "-reducer", "cat", "-output", str(desk.out / "o"),
    )  # fmt: skip

    assert status == 1
    (why,) = [line for line in said.splitlines() if line.startswith("  why:")]
    assert "No space left on device" in why and str(small) in why
