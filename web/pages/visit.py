"""A visit: who looks at which cluster, with which words in the address; and what a page is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from mrstream.cluster.errors import UserError
from mrstream.view.source import Source
from mrstream.view.watch import Watch
from mrstream.web.pages.parts import Part

NUMBER_DIGITS_MAX = 15
OWN = (".mrstream", ".trash")


class NoSuchPage(UserError):
    """There is nothing under this address."""


class OutOfBounds(UserError):
    """The visitor may not look there, or may not change anything."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who proved to be allowed here."""

    user: str
    session: bytes = b""
    """What the tokens of the forms of this visitor are made from."""
    may_change: bool = True
    paths: tuple[str, ...] = ("/",)
    """The trees of files that are open to this visitor."""
    key: str = ""
    """The id of the key by which the visitor came in."""

    def may_see(self, path: str) -> bool:
        """Whether a file is in one of the visitor's trees, by whole names. What the file
        system keeps for itself is in none that was given by a key."""
        if self.key and path.split("/")[1] in OWN:
            return False
        return any(path == top or path.startswith(top.rstrip("/") + "/") for top in self.paths)

    def may_enter(self, path: str) -> bool:
        """Whether one of the visitor's trees is there, or leads there."""
        inside = path.rstrip("/") + "/"
        return self.may_see(path) or any(top.startswith(inside) for top in self.paths)

    @property
    def sees_all(self) -> bool:
        """Whether no file is closed to this visitor: jobs tell of any."""
        return "/" in self.paths

    def check(self, path: str) -> str:
        """Return the path if it is one and the visitor may look there."""
        names = path.split("/")[1:]
        if not path.startswith("/") or (path != "/" and {"", ".", ".."} & set(names)):
            raise NoSuchPage(f"{path!r} is no path of a file")
        if not self.may_see(path):
            raise OutOfBounds(f"{path} is outside of {', '.join(self.paths)}, which is open to you")
        return path


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at one page."""

    watch: Watch
    visitor: Visitor
    query: Mapping[str, str] = field(default_factory=dict)
    theme: str = ""
    said: str = ""
    """How the last action ended, in words."""
    acts_for: Source | None = None
    """A source that acts for this visitor; the watch's own if None."""

    @property
    def source(self) -> Source:
        """Who answers questions that the picture does not, and does what is asked."""
        return self.acts_for or self.watch.source

    @property
    def now_s(self) -> float:
        """The time by the masters' clock."""
        return self.source.now_s()

    @property
    def wanted(self) -> str:
        """Only rows with this text are wanted."""
        return self.query.get("find", "")

    @property
    def page(self) -> int:
        """Which page of a long list, from 1."""
        return max(1, self.number("page", 1))

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the address; what is none counts as not said."""
        value = self.query.get(name, "")
        if not (value.isascii() and value.isdigit()) or len(value) > NUMBER_DIGITS_MAX:
            return default
        return int(value)

    def one_of(self, name: str, options: Sequence[str]) -> str:
        """Return a word of the address that is one of these; else the first of them."""
        value = self.query.get(name, "")
        return value if value in options else options[0]


@dataclass(frozen=True, slots=True)
class Page:
    """What stands between the head and the foot of every page."""

    title: str
    body: tuple[Part | Markup, ...]
    here: str = ""
    """Which of the pages in the line at the top this belongs to."""
    every_s: int = 0
    """How often a browser asks for what changed; 0 where nothing does."""
    status: int = 200
    back: tuple[tuple[str, str], ...] = ()
    """The way here: words and addresses of the pages above."""
