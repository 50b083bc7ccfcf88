"""Hadoop's configuration files: `<configuration>` with properties, finals and includes.

Takes a path; gives the properties in the order in which they count. Reads local files only, and
sets nothing: that a final property keeps its value against later files is the caller's to see to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from mrstream.cluster.errors import UserError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


class BadConfigurationFile(UserError):
    """A `-conf` file that is not there, not XML, or that includes what is neither."""


class FileProperty(msgspec.Struct, frozen=True):
    """One `<property>`; later files cannot change one that `is_final`."""

    name: str
    value: str
    is_final: bool


def read_configuration(path: str) -> list[FileProperty]:
    """Return the properties of a configuration file, those of the files it includes in place."""
    return list(_properties(path, ()))


def _properties(path: str, including: tuple[str, ...]) -> Iterator[FileProperty]:
    if path in including:
        raise BadConfigurationFile(f"-conf {path} includes itself")
    for element in _elements(_root_of(path)):
        if _local_name(element) == "include":
            yield from _included(element, path, including)
        elif (found := _property(element)) is not None:
            yield found


def _root_of(path: str) -> Element:
    from xml.etree import ElementTree  # not every job has such a file

    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        raise BadConfigurationFile(f"-conf {path}: no such file") from None
    except (OSError, ElementTree.ParseError) as e:
        raise BadConfigurationFile(f"-conf {path} cannot be read: {e}") from e
    if _local_name(root) != "configuration":
        raise BadConfigurationFile(f"-conf {path}: the top element is not <configuration>")
    return root


def _elements(parent: Element) -> Iterator[Element]:
    """Yield properties and includes, also of configurations inside a configuration."""
    for element in parent:
        if _local_name(element) == "configuration":
            yield from _elements(element)
        elif _local_name(element) in ("property", "include"):
            yield element


def _included(element: Element, path: str, including: tuple[str, ...]) -> Iterator[FileProperty]:
    href = element.get("href", "").removeprefix("file://")
    target = os.path.join(os.path.dirname(path), href)
    if href and os.path.exists(target):
        yield from _properties(target, (*including, path))
        return
    fallback = next((inner for inner in element if _local_name(inner) == "fallback"), None)
    if fallback is None:
        raise BadConfigurationFile(
            f"Fetch fail on include for '{href}' with no fallback while loading '{path}'"
        )
    yield from filter(None, map(_property, _elements(fallback)))


def _property(element: Element) -> FileProperty | None:
    """Return the property, if it has a name and a value; both may be attributes."""
    name, value = _part(element, "name"), _part(element, "value")
    if not name or value is None:
        return None
    return FileProperty(name.strip(), value, (_part(element, "final") or "").strip() == "true")


def _part(element: Element, name: str) -> str | None:
    return element.get(name, element.findtext(name))


def _local_name(element: Element) -> str:
    # A comment or an instruction has a function where an element has its name.
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
