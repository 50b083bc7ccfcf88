"""The line that says how far a long copy is."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from mrstream.dfs.shell import progress
from mrstream.dfs.shell.progress import Progress


class Time:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


def test_a_copy_says_how_far_it_is_how_fast_and_how_long_it_takes(time: Time) -> None:
    out = io.StringIO()
    bar = Progress(out, 10 << 20, is_shown=True)

    time.now_s += 2.0
    bar.add(4 << 20)
    time.now_s += 0.05
    bar.add(1 << 20)
    drawn = out.getvalue()
    time.now_s += 2.95
    bar.add(5 << 20)
    bar.finish()

    assert drawn == (
        "\r[############..................]  40% 4.0 MiB of 10.0 MiB, 2.0 MiB/s, 3 s left  "
    ), "and it is not drawn again so soon"
    assert out.getvalue().endswith(
        "\r[##############################] 100% 10.0 MiB of 10.0 MiB, 2.0 MiB/s, 0 s left  \n"
    )


def test_a_short_copy_and_one_that_nobody_watches_say_nothing(time: Time) -> None:
    for shown, seconds in ((True, 0.5), (False, 50.0)):
        out = io.StringIO()
        bar = Progress(out, 100, is_shown=shown)
        time.now_s += seconds
        bar.add(100)
        bar.finish()

        assert out.getvalue() == ""


def test_a_copy_of_nothing_is_complete(time: Time) -> None:
    out = io.StringIO()
    bar = Progress(out, 0, is_shown=True)
    time.now_s += 2.0
    bar.add(0)

    assert "] 100% 0 B of 0 B" in out.getvalue()


def test_every_copy_ends_when_one_is_interrupted(time: Time) -> None:
    bar = Progress(io.StringIO(), 100, is_shown=False)
    bar.stop()

    with pytest.raises(KeyboardInterrupt):
        bar.add(1)
