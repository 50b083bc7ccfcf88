"""Pickles of functions that are the same bytes for the same functions, whichever Python makes them.

A resumed flow knows by them what changed, so chance must not get in. cloudpickle lets it in twice:
a set comes in the order of its hashes, which differ from process to process, and a class that
travels by value has a random name. Here sets of plain values come sorted, as persistent ids of the
pickle, and classes without that name, which only tells apart pickles that one process loads.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any

_PLAIN = (str, bytes, int, float, bool, type(None))
_TRACKER = re.compile(r"[0-9a-f]{32}")


def dumps(value: Any) -> bytes:
    """Pickle a value, functions and classes in it by value where they cannot be imported."""
    import cloudpickle  # only who makes a job of functions needs it

    class Steady(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: io.BytesIO) -> None:
            super().__init__(file)
            self._sets: dict[int, tuple[int, object]] = {}

        def persistent_id(self, obj: Any) -> Any:
            if type(obj) not in (set, frozenset) or not all(map(_is_plain, obj)):
                return None
            known = self._sets.get(id(obj))
            if known is not None:
                return (known[0],)
            number = len(self._sets)
            self._sets[id(obj)] = number, obj  # held, so that no other gets its id
            return number, type(obj) is frozenset, sorted(obj, key=_order)

        def reducer_override(self, obj: Any) -> Any:
            reduced = super().reducer_override(obj)
            if isinstance(obj, type) and isinstance(reduced, tuple):
                call, given, *more = reduced
                return (call, tuple(map(_untracked, given)), *more)
            return reduced

    with io.BytesIO() as file:
        Steady(file).dump(value)
        return file.getvalue()


def loads(data: bytes) -> Any:
    """Return the value of a pickle."""
    return _Reader(io.BytesIO(data)).load()


class _Reader(pickle.Unpickler):
    """Knows the sets of a pickle."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._sets: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        if len(pid) > 1:
            number, is_frozen, members = pid
            self._sets[number] = (frozenset if is_frozen else set)(members)
        return self._sets[pid[0]]


def _is_plain(member: Any) -> bool:
    """Whether its text tells all of it; so it holds no set that is just being written."""
    if type(member) in (tuple, frozenset):
        return all(map(_is_plain, member))
    return type(member) in _PLAIN


def _order(member: Any) -> tuple[str, str]:
    inside = sorted(map(_order, member)) if type(member) is frozenset else member
    return type(member).__name__, repr(inside)


def _untracked(argument: Any) -> Any:
    is_tracker = type(argument) is str and _TRACKER.fullmatch(argument)
    return None if is_tracker else argument
