"""Java regular expressions, translated to Python's where the two differ.

Covers what jobs use: `\\Q…\\E`, `\\p{Lu}` and its like, classes with `&&` and in one another, named
groups, flags, `\\z`. What Python cannot say is refused with the construct's name. Java's `\\w` and
its like are ASCII, as is its matching without regard to case unless `(?u)` says otherwise; its
`\\b` is not. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mrstream.cluster.errors import UserError
from mrstream.streaming.java.java_class import (
    ESCAPED,
    UnknownClass,
    named_at,
    parse_class,
    word,
    written,
)

_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_PLAIN_CLASS = re.compile(r"\[\^?\]?(?:[^\\\[\]&]|\\[tnrf\\\[\]^.$|?*+(){}/&-]|&(?!&))*\]")
_ASCII_CLASS = re.compile(r"\[\^?\]?(?:[^\\\[\]&]|\\[a-zA-Z\\\[\]^.$|?*+(){}/&-]|&(?!&))*\]")
_SAME = {"z": "\\Z", "Z": "(?=\\n?\\Z)", "A": "\\A", "e": "\\x1B"}
_LINE_BREAK = "(?:\\r\\n|[\\n\\x0B\\f\\r\\x85\\u2028\\u2029])"
_NO_LINE_END = "[^\\n\\r\\x85\\u2028\\u2029]"


class BadRegex(UserError):
    """A regular expression that is wrong, or that Python cannot express."""


def compile_java(pattern: str) -> re.Pattern[str]:
    body, flags = _leading_flags(pattern)
    try:
        return re.compile(_Translation(body, flags).text(), flags)
    except (UnknownClass, re.error, OverflowError, RecursionError) as error:
        raise BadRegex(f"the regular expression {pattern!r}: {error}") from None


def java_in_bytes(pattern: str) -> bytes:
    """Return a Java regular expression as Python finds it in bytes, where classes are ASCII."""
    try:
        text = _Translation(pattern, re.ASCII, is_bytes=True).text()
    except UnknownClass as error:
        raise BadRegex(f"the regular expression {pattern!r}: {error}") from None
    return text.encode("utf-8", "surrogateescape")


def find_all(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches that Java's `find` gives one after the other. It steps through UTF-16: an
    empty match is found between the halves of a character beyond U+FFFF, too."""
    for match in pattern.finditer(text):
        yield match
        at = match.end()
        if match.start() == at < len(text) and ord(text[at]) > 0xFFFF:
            within = pattern.match(chr(0xD83D) + chr(0xDC00) + text[at + 1 :], 1)
            if within is not None and not within.group():
                yield within


def _leading_flags(pattern: str) -> tuple[str, int]:
    """Return a pattern without the `(?imsxud)` that it begins with, and Python's flags for them."""
    flags: int = re.ASCII
    letters = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
    while (found := _FLAGS.match(pattern)) is not None:
        for letter in found[1]:
            if letter in letters:
                flags |= letters[letter]
            elif letter == "u":
                flags &= ~re.ASCII
            else:
                raise BadRegex(f"the regular expression {pattern!r}: (?{letter}) is not supported")
        pattern = pattern[found.end() :]
    return pattern, flags


class _Translation:
    """One pattern on its way."""

    def __init__(self, pattern: str, flags: int, *, is_bytes: bool = False) -> None:
        self._pattern = pattern
        self._any_case = bool(flags & re.IGNORECASE)
        self._dot = "." if flags & re.DOTALL or is_bytes else _NO_LINE_END
        self._is_bytes = is_bytes

    def text(self) -> str:
        out: list[str] = []
        at = 0
        while at < len(self._pattern):
            begin = at
            text, at = self._next(at)
            is_anchor = self._pattern[begin:at] in ("^", "$", "\\b", "\\B", "\\z", "\\Z", "\\A")
            # Java repeats an anchor, which Python refuses.
            is_repeated = is_anchor and self._pattern[at : at + 1] in ("*", "+", "?", "{")
            out.append(f"(?:{text})" if is_repeated else text)
        return "".join(out)

    def _next(self, at: int) -> tuple[str, int]:
        """Translate what begins at `at`; return it and where it ends."""
        pattern, character = self._pattern, self._pattern[at]
        if character == "\\":
            return self._escape(at)
        if character == "[":
            return self._class(at)
        if character == ".":
            return self._dot, at + 1
        if pattern.startswith("(?<", at) and pattern[at + 3 : at + 4] not in "=!":
            return "(?P<", at + 3
        return character, at + 1

    def _class(self, at: int) -> tuple[str, int]:
        """Translate a class; one that both read alike stays as it is."""
        plain = (_ASCII_CLASS if self._is_bytes else _PLAIN_CLASS).match(self._pattern, at)
        if plain is None:
            ranges, end = parse_class(self._pattern, at, any_case=self._any_case)
            return written(ranges), end
        head = "[^" if plain[0].startswith("[^") else "["
        inside = plain[0][len(head) : -1]
        # Java reads a bracket first in a class as Python does, but for a closing one.
        return head + re.sub(r"^\]", r"\]", inside) + "]", plain.end()

    def _escape(self, at: int) -> tuple[str, int]:
        pattern = self._pattern
        letter = pattern[at + 1 : at + 2]
        match letter:
            case "Q":
                end = pattern.find("\\E", at + 2)
                stop = len(pattern) if end < 0 else end
                return re.escape(pattern[at + 2 : stop]), stop + (2 if end >= 0 else 0)
            case "p" | "P":
                ranges, end = named_at(pattern, at, any_case=self._any_case)
                return written(ranges), end
            case "k" if pattern.startswith("<", at + 2):
                end = pattern.find(">", at)
                return f"(?P={pattern[at + 3 : end]})", end + 1
            case "x" if pattern.startswith("{", at + 2):
                return self._code_point(at)
            case "b" | "B":
                return self._border(letter), at + 2
            case "R":
                return _LINE_BREAK, at + 2
            case "G" | "X":
                raise UnknownClass(f"\\{letter} is not supported")
        if letter in _SAME:
            return _SAME[letter], at + 2
        if letter in ESCAPED and letter and not self._is_bytes:
            return written(ESCAPED[letter]), at + 2
        return pattern[at : at + 2], at + 2

    def _border(self, letter: str) -> str:
        if self._is_bytes:
            return f"\\{letter}"
        inside = written(word())
        if letter == "b":
            return f"(?:(?<={inside})(?!{inside})|(?<!{inside})(?={inside}))"
        return f"(?:(?<={inside})(?={inside})|(?<!{inside})(?!{inside}))"

    def _code_point(self, at: int) -> tuple[str, int]:
        end = self._pattern.find("}", at)
        digits = self._pattern[at + 3 : end]
        if end < 0 or not re.fullmatch("0*(10|[0-9a-fA-F])?[0-9a-fA-F]{1,4}", digits):
            raise UnknownClass(f"\\x{{{digits[:20]}}} is no character")
        return f"\\U{int(digits, 16):08x}", end + 1
