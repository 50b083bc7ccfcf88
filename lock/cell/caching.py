"""Who may have what in its cache, and when a change may go on (Chubby §2.7).

L4: a change is decided only when every session that may have cached what it changes has
acknowledged that it threw it away, or is over. From when a change is asked for until it is decided,
nobody is allowed to cache what it touches; reads go on. Entries are invalidated, never updated.

A key is a node's path for what the node is (its absence too), and the path with a slash at its end
for the names in a directory.
"""

from __future__ import annotations

from mrstream.lock.cell.sessions import Live, Sessions
from mrstream.lock.cell.settings import Settings
from mrstream.lock.paths import parent_of
from mrstream.lock.protocol import INVALIDATE


def names_key(path: str) -> str:
    """The key of the names in a directory."""
    return f"{path}/"


def keys_of_coming_or_going(path: str) -> tuple[str, ...]:
    """What changes where a node is made or removed."""
    return path, names_key(path), names_key(parent_of(path))


class Caching:
    """The caches of all clients, as far as the leader must know."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions
        self._cachers: dict[str, dict[int, int]] = {}
        """Key to session to the number of the invalidation that it was sent, 0 for none yet."""
        self._keys_of: dict[int, dict[str, None]] = {}
        self._told: dict[int, dict[int, str]] = {}
        """Session to the invalidations that it has not acknowledged."""
        self._changing: dict[str, dict[int, None]] = {}
        """Key to the changes that wait for it; while there is one, nobody may cache it."""
        self._waits_for: dict[int, tuple[str, ...]] = {}
        self.is_emptied = False
        """Something was acknowledged since the flag was put down: changes may go on."""

    @property
    def count(self) -> int:
        """Entries that clients may have."""
        return sum(len(keys) for keys in self._keys_of.values())

    def allow(self, live: Live, key: str) -> bool:
        """May the session keep what it is told about this key? Then it is noted that it does."""
        if key in self._changing:
            return False
        keys = self._keys_of.setdefault(live.id, {})
        if key not in keys and len(keys) >= self._settings.cached_max:
            return False
        # An invalidation is on its way: its acknowledgement would be taken for this entry's.
        if self._cachers.get(key, {}).get(live.id, 0):
            return False
        keys[key] = None
        self._cachers.setdefault(key, {}).setdefault(live.id, 0)
        return True

    def prepare(self, change: int, keys: tuple[str, ...]) -> bool:
        """A change of these keys is asked for: stop caching them, and have those who may have them
        throw them away. Returns whether it may be decided now; if so, `done` must follow."""
        if self._waits_for.get(change) != keys:
            self.done(change)
            self._waits_for[change] = keys
            for key in keys:
                self._changing.setdefault(key, {})[change] = None
        clear = True
        for key in keys:
            for session, number in self._cachers.get(key, {}).items():
                clear = False
                if not number:
                    number = self._sessions.tell(self._sessions.live[session], INVALIDATE, key)
                    self._cachers[key][session] = number
                    self._told.setdefault(session, {})[number] = key
        return clear

    def is_clear(self, change: int) -> bool:
        """May a change that was asked for be decided now?"""
        return not any(self._cachers.get(key) for key in self._waits_for.get(change, ()))

    def done(self, change: int) -> None:
        """The change is decided, or given up: what it touched may be cached again."""
        for key in self._waits_for.pop(change, ()):
            changes = self._changing[key]
            changes.pop(change, None)
            if not changes:
                del self._changing[key]

    def acknowledged(self, live: Live) -> None:
        """Everything that the session has acknowledged is out of its cache."""
        told = self._told.get(live.id, {})
        for number in [number for number in told if number <= live.acked]:
            self._remove(live.id, told.pop(number))

    def forget(self, session: int) -> None:
        """The session is over, and its cache with it."""
        for key in list(self._keys_of.get(session, ())):
            self._remove(session, key)
        self._keys_of.pop(session, None)
        self._told.pop(session, None)

    def _remove(self, session: int, key: str) -> None:
        del self._keys_of[session][key]
        cachers = self._cachers[key]
        del cachers[session]
        if not cachers:
            del self._cachers[key]
            self.is_emptied = True
