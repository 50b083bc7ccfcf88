"""Which environments run on which hosts."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.job.environment import (
    BadEnvironment,
    Environment,
    Platform,
    misfit,
    refuse_misfit,
    this_platform,
)

HOST = Platform("3.11", "x86_64", "glibc 2.36")
NEEDS = Environment("r.txt", "k", python="3.11", machine="x86_64", libc="glibc 2.17")


def test_it_runs_on_a_host_like_this_one() -> None:
    assert misfit(NEEDS, HOST) == ""


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (Platform("3.12", "x86_64", "glibc 2.36"), "it is for Python 3.11, and there is 3.12"),
        (Platform("3.11", "aarch64", "glibc 2.36"), "it is for x86_64, and there is aarch64"),
        (Platform("3.11", "x86_64", "glibc 2.9"), "it needs glibc 2.17, and there is glibc 2.9"),
        (Platform("3.11", "x86_64", "musl"), "it needs glibc 2.17, and there is musl"),
    ],
)
def test_another_python_machine_or_c_library_is_named(host: Platform, why: str) -> None:
    assert misfit(NEEDS, host) == why
    with pytest.raises(BadEnvironment, match=r"r\.txt cannot run on h2: " + why):
        refuse_misfit(NEEDS, host, "h2")


def test_what_has_no_compiled_part_runs_on_any_machine() -> None:
    assert misfit(Environment("r.txt", python="3.11"), Platform("3.11", "aarch64", "musl")) == ""


def test_one_that_brings_its_python_does_not_care_for_the_hosts() -> None:
    packed = Environment("c.tar.gz", python="3.9", brings_python=True, machine="x86_64")

    assert misfit(packed, HOST) == ""


def test_a_host_that_has_not_said_what_it_is_is_not_refused() -> None:
    """A worker of the version before says nothing; it will look for itself."""
    assert misfit(NEEDS, Platform()) == ""


def test_this_machine_says_what_it_is() -> None:
    here = this_platform()

    assert here.python.startswith("3.") and here.machine
    assert here.libc == "musl" or here.libc.startswith("glibc 2.")
