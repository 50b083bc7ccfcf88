"""The XML of S3: strict documents in, escaped ones out; without IO.

What comes in may have elements and text and nothing else: a document type, an entity, a processing
instruction or too much of anything is refused before it means something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from xml.parsers import expat
from xml.sax.saxutils import escape

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
DEPTH_MAX = 8
ELEMENTS_MAX = 100_000
_SPECIAL = re.compile('[&<>"\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]')
_UNSAID = re.compile("[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")
"""What XML cannot say, or (a carriage return) says as something else."""


class NotXml(ValueError):
    """Not a document that we take."""


@dataclass(slots=True)
class Element:
    """One element: its name without a namespace, its text, what is in it."""

    name: str
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, name: str) -> Element | None:
        return next((child for child in self.children if child.name == name), None)

    def all(self, name: str) -> list[Element]:
        return [child for child in self.children if child.name == name]

    def value(self, name: str, default: str = "") -> str:
        found = self.find(name)
        return default if found is None else found.text.strip()


def parse(data: bytes, root: str) -> Element:
    """Return the document if its root has that name; `NotXml` says why not."""
    reading = _Reading()
    parser = expat.ParserCreate(None)
    parser.buffer_text = True
    parser.StartElementHandler = reading.start
    parser.EndElementHandler = reading.end
    parser.CharacterDataHandler = reading.text
    parser.StartDoctypeDeclHandler = reading.refuse
    parser.EntityDeclHandler = reading.refuse
    parser.ProcessingInstructionHandler = reading.refuse
    parser.ExternalEntityRefHandler = reading.refuse
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise NotXml(f"the XML is not well formed: {error}") from None
    except (LookupError, UnicodeError):
        raise NotXml("the XML is in an encoding that is not known") from None
    found = reading.root
    if found is None or found.name != root:
        raise NotXml(f"the document must be a {root}")
    return found


class _Reading:
    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= DEPTH_MAX or self._count > ELEMENTS_MAX:
            raise NotXml(
                f"more than {DEPTH_MAX} elements within each other, or {ELEMENTS_MAX} in all"
            )
        made = Element(name.rpartition(":")[2])
        if self._open:
            self._open[-1].children.append(made)
        else:
            self.root = made
        self._open.append(made)

    def end(self, name: str) -> None:
        self._open.pop()

    def text(self, text: str) -> None:
        if self._open:
            self._open[-1].text += text

    def refuse(self, *_: object) -> int:
        raise NotXml("document types, entities and instructions are not taken")


def element(name: str, value: object = "", *children: str) -> str:
    """One element: a value, escaped, or elements that were made here."""
    if children:
        return f"<{name}>{''.join(children)}</{name}>"
    text = value if isinstance(value, str) else _word(value)
    return f"<{name}>{escaped(text)}</{name}>"


@lru_cache(maxsize=1024)
def person(name: str, user: str) -> str:
    """An owner, or whoever began something."""
    return element(name, "", element("ID", user), element("DisplayName", user))


def document(root: str, *children: str, namespace: bool = True) -> str:
    """A whole document of elements that were made here."""
    return DECLARATION + bare(root, *children, namespace=namespace)


def bare(root: str, *children: str, namespace: bool = True) -> str:
    """The same without its first line."""
    told = f' xmlns="{NAMESPACE}"' if namespace else ""
    return f"<{root}{told}>{''.join(children)}</{root}>"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def is_sayable(text: str) -> bool:
    """Can XML say it, and every parser read it?"""
    return _UNSAID.search(text) is None


def escaped(text: str) -> str:
    """Text as it stands in an element."""
    if _SPECIAL.search(text) is None:
        return text
    plain = escape(text, {'"': "&quot;"})
    return _UNSAID.sub(lambda found: f"&#x{ord(found[0]):X};", plain)
