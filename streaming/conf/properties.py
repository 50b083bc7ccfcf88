"""A job's properties: what it was given, over the packaged defaults, with old names and `${}`.

Takes names and text values; gives text. Knows no property by name (that is
`streaming.conf.jobconf`), never writes a file, and reads only the two packaged tables,
each on first use.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping

from mrstream.cluster.errors import UserError
from mrstream.cluster.user import user_name

EXPANSION_DEPTH_MAX = 20

_REFERENCE = re.compile(r"\$\{([^}$\s]+)\}")


class BadProperty(UserError):
    """A property whose value cannot be used; the message names it, its value and what it may be."""


class Properties:
    """The properties of one job.

    Invariant: `given` holds new names only and no empty value (an empty value does
    not survive the trip to a task on Hadoop, so it means the default from the start).
    """

    __slots__ = ("_given", "_new_names", "_old_names")

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given: dict[str, str] = {}
        self._new_names: set[str] = set()
        self._old_names: dict[str, str] = {}
        if given:
            for name, value in given.items():
                self.set(name, value)

    def set(self, name: str, value: str) -> None:
        """Give a property. Under its old name it gives way to the new one, whatever the order."""
        name = name.strip()
        new_name = deprecated_names().get(name)
        if new_name is not None:
            self._old_names[name] = new_name
            if new_name in self._new_names:
                return
        else:
            new_name = name
            self._new_names.add(name)
        if value:
            self._given[new_name] = value
        else:
            self._given.pop(new_name, None)

    def is_given(self, name: str) -> bool:
        """Whether the job was given this property, under its old or its new name."""
        return current_name(name) in self._given

    def get(self, name: str) -> str | None:
        """Return the value in force, expanded, or None."""
        value = self._raw(current_name(name))
        return None if value is None else self.expanded(value)

    def given(self) -> dict[str, str]:
        """Return what the job was given, unexpanded: with the defaults it is the whole job."""
        return dict(self._given)

    def old_names_used(self) -> list[tuple[str, str]]:
        """Return (old, new) of the deprecated names that the job was given."""
        return sorted(self._old_names.items())

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield every property in force, expanded, defaults included."""
        for name, value in (default_properties() | self._given).items():
            yield name, self.expanded(value)

    def own_items(self) -> Iterator[tuple[str, str]]:
        """Yield, expanded, what is not the same in every job: the given, and what refers to them.

        `plain_defaults` has the rest.
        """
        for name in referring_defaults():
            if name not in self._given:
                yield name, self.expanded(default_properties()[name])
        for name, value in self._given.items():
            yield name, self.expanded(value)

    def _raw(self, name: str) -> str | None:
        value = self._given.get(name)
        return default_properties().get(name) if value is None else value

    def expanded(self, value: str) -> str:
        """Replace each `${name}` by a system property, the environment or another property.

        The first reference goes first, and one that is unknown ends it: it and all behind it
        stay. A property that refers to itself stays as it stands.
        """
        if "${" not in value:
            return value
        expanded = value
        for _ in range(EXPANSION_DEPTH_MAX):
            found = _REFERENCE.search(expanded)
            text = None if found is None else self._referenced(found[1])
            if found is None or text is None:
                return expanded
            if found[0] in text:
                return value
            expanded = expanded[: found.start()] + text + expanded[found.end() :]
        return expanded

    def _referenced(self, name: str) -> str | None:
        if name.startswith("env."):
            return _environment_variable(name.removeprefix("env."))
        system = _SYSTEM.get(name)
        return system() if system else self._raw(current_name(name))


def _environment_variable(name: str) -> str | None:
    """Return what `X`, `X-default` (for one that is unset) or `X:-default` (or empty) means."""
    found = re.fullmatch(r"(.*?)(:?-)(.*)", name)
    if found is None:
        return os.environ.get(name)
    value = os.environ.get(found[1])
    return found[3] if value is None or (found[2] == ":-" and not value) else value


def current_name(name: str) -> str:
    """Return the new name of a property, or the name itself."""
    name = name.strip()
    return deprecated_names().get(name, name)


@functools.cache
def plain_defaults() -> dict[str, str]:
    """Return the defaults that refer to nothing else."""
    return {name: value for name, value in default_properties().items() if "${" not in value}


@functools.cache
def referring_defaults() -> tuple[str, ...]:
    """Return the names of the defaults that refer to other properties."""
    return tuple(name for name, value in default_properties().items() if "${" in value)


@functools.cache
def default_properties() -> dict[str, str]:
    """Return Hadoop's defaults, unexpanded."""
    return _table("default_properties.tsv")


@functools.cache
def deprecated_names() -> dict[str, str]:
    """Return the new name of every old one."""
    return _table("deprecated_properties.tsv")


def _table(file_name: str) -> dict[str, str]:
    path = os.path.join(os.path.dirname(__file__), file_name)
    with open(path, encoding="utf-8") as f:
        return dict(line.split("\t", 1) for line in f.read().splitlines())


_SYSTEM: dict[str, Callable[[], str]] = {
    "user.name": user_name,
    "user.home": lambda: os.path.expanduser("~"),
    "user.dir": os.getcwd,
    "java.io.tmpdir": lambda: os.environ.get("TMPDIR", "/tmp"),
    "file.separator": lambda: os.sep,
    "path.separator": lambda: os.pathsep,
    "line.separator": lambda: os.linesep,
}


# --- text on the wire
# A word of the command line may hold bytes that are not UTF-8; Python keeps each as a lone
# surrogate, which no wire format takes. On the wire such a byte is a character of the last
# private plane, which no text uses.

_TO_WIRE = {0xDC00 + byte: 0x10FF00 + byte for byte in range(128, 256)}
_FROM_WIRE = {wire: lone for lone, wire in _TO_WIRE.items()}


def to_wire(text: str) -> str:
    """Return text that UTF-8 can encode, from text that may hold undecodable bytes."""
    return text if text.isascii() else text.translate(_TO_WIRE)


def from_wire(text: str) -> str:
    """Undo `to_wire`."""
    return text if text.isascii() else text.translate(_FROM_WIRE)
