"""A job's Python environment as data: what names it, where it lies, and which hosts it runs on.

Takes what is known of an environment and of a host; says in words what keeps the one from running
on the other. Never opens a file.
"""

from __future__ import annotations

import os
import platform
import re
import sys

import msgspec

from mrstream.cluster.errors import UserError

FUNCTIONS_LINK = "mrstream.functions"
"""The file of a job's Python functions: these are of one Python, and so must its environment be."""
_GLIBC = re.compile(r"glibc (\d+)\.(\d+)")
_MUSL = "musl"


class BadEnvironment(UserError):
    """An environment that cannot be read, built, or run where the job would."""


class Environment(msgspec.Struct, frozen=True):
    """A Python environment that a job's programs run in."""

    source: str
    """What the user named: a file or directory of the submitter's."""
    key: str = ""
    """Names its content; empty as long as nobody has looked."""
    path: str = ""
    """Where it lies: a directory of this host, or its archive in the dfs."""
    python: str = ""
    """The version that its packages are for, such as 3.11."""
    brings_python: bool = False
    """Whether its Python is in it; else it uses the one that runs mrstream on a host."""
    machine: str = ""
    """What its compiled parts are for, such as x86_64; empty: it has none."""
    libc: str = ""
    """The oldest C library that its compiled parts run with: `glibc 2.17`, `musl`; empty: any."""


class Platform(msgspec.Struct, frozen=True):
    """What a host is, to an environment."""

    python: str = ""
    machine: str = ""
    libc: str = ""


def this_platform() -> Platform:
    """Say what this host is."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or _MUSL
    except (ValueError, OSError):
        libc = _MUSL
    return Platform("{}.{}".format(*sys.version_info[:2]), platform.machine(), libc)


def misfit(environment: Environment, host: Platform) -> str:
    """Say why an environment cannot run on a host; empty if it can, or if the host is not known."""
    if not host.python:
        return ""
    if not environment.brings_python and environment.python != host.python:
        return f"it is for Python {environment.python}, and there is {host.python}"
    if environment.machine and environment.machine != host.machine:
        return f"it is for {environment.machine}, and there is {host.machine}"
    if environment.libc and not _runs_with(environment.libc, host.libc):
        return f"it needs {environment.libc}, and there is {host.libc}"
    return ""


def refuse_misfit(environment: Environment, host: Platform, name: str) -> None:
    """Raise `BadEnvironment` if an environment cannot run on the host of this name."""
    if why := misfit(environment, host):
        raise BadEnvironment(
            f"the environment {environment.source} cannot run on {name}: {why}; build it on a "
            "machine like the hosts, or pack one that brings its own Python (conda-pack)"
        )


def _runs_with(needed: str, there: str) -> bool:
    """Whether programs for one C library run with another: with their own kind, not an older one.

    What is no version of glibc is a kind of its own.
    """
    need, have = _GLIBC.fullmatch(needed), _GLIBC.fullmatch(there)
    if need is None or have is None:
        return needed == there
    return (int(need[1]), int(need[2])) <= (int(have[1]), int(have[2]))
