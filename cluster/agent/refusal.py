"""Why a host does not do what it was asked: answers for the person at the keyboard."""

from __future__ import annotations


class RefusedError(Exception):
    """What is wrong on this host, and what to do."""


def reason(error: OSError) -> str:
    """Return what the system said, without the number that only programs need."""
    return error.strerror or str(error)


def told(error: OSError) -> str:
    """Return what the system said, and of which file."""
    where = f"{error.filename}: " if error.filename is not None else ""
    return where + reason(error)
