"""Java regular expressions, translated to Python's where the two differ.

Covers what jobs use: `\\Q…\\E`, `\\p{Alpha}` and its like, possessive and named groups, `\\z`.
What Python cannot say is refused with the construct's name. Java's classes are ASCII by default,
so patterns are compiled with re.ASCII. Pure.
"""

from __future__ import annotations

import re

from mrstream.cluster.errors import UserError

_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7F",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": " \\t",
    "Cntrl": "\\x00-\\x1F\\x7F",
    "XDigit": "0-9a-fA-F",
    "Space": " \\t\\n\\x0B\\f\\r",
}
_POSIX |= {"IsAlphabetic": _POSIX["Alpha"], "IsDigit": _POSIX["Digit"], "L": _POSIX["Alpha"]}
_POSIX |= {"Lu": _POSIX["Upper"], "Ll": _POSIX["Lower"], "N": _POSIX["Digit"]}
_ESCAPES = {
    "z": "\\Z",
    "Z": "(?=\\n?\\Z)",
    "h": "[ \\t\\xA0]",
    "R": "(?:\\r\\n|[\\n\\x0B\\f\\r])",
    "e": "\\x1B",
}


class BadRegex(UserError):
    """A regular expression that is wrong, or that Python cannot express."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a Java regular expression."""
    try:
        return re.compile(to_python(pattern), re.ASCII)
    except re.error as error:
        raise BadRegex(f"the regular expression {pattern!r}: {error}") from None


def to_python(pattern: str) -> str:
    """Rewrite a Java regular expression in Python's syntax."""
    out: list[str] = []
    index = 0
    in_class = False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            text, index = _escape(pattern, index, in_class)
            out.append(text)
            continue
        if in_class and pattern.startswith("&&", index):
            raise BadRegex(f"the regular expression {pattern!r}: && in a class is not supported")
        if character == "[":
            if in_class:
                raise BadRegex(
                    f"the regular expression {pattern!r}: a class inside a class is not supported"
                )
            in_class = True
            # Java reads a bracket first in a class as Python does, but for a closing one.
            if pattern.startswith("[^]", index) or pattern.startswith("[]", index):
                width = 2 if pattern[index + 1] == "]" else 3
                out.append(pattern[index : index + width - 1] + "\\]")
                index += width
                continue
        elif character == "]" and in_class:
            in_class = False
        if (
            not in_class
            and pattern.startswith("(?<", index)
            and pattern[index + 3 : index + 4] not in "=!"
        ):
            out.append("(?P<")
            index += 3
            continue
        out.append(character)
        index += 1
    return "".join(out)


def _escape(pattern: str, index: int, in_class: bool) -> tuple[str, int]:
    """Translate the escape at `index`; gives it and the index after it."""
    letter = pattern[index + 1 : index + 2]
    if letter == "Q":
        end = pattern.find("\\E", index + 2)
        stop = len(pattern) if end < 0 else end
        return re.escape(pattern[index + 2 : stop]), stop + (2 if end >= 0 else 0)
    if letter in ("p", "P") and letter:
        return _posix(pattern, index, in_class)
    if letter == "k" and pattern.startswith("<", index + 2):
        end = pattern.find(">", index)
        return f"(?P={pattern[index + 3 : end]})", end + 1
    if letter == "x" and pattern.startswith("{", index + 2):
        end = pattern.find("}", index)
        return f"\\U{int(pattern[index + 3 : end], 16):08x}", end + 1
    if letter in _ESCAPES and not in_class:
        return _ESCAPES[letter], index + 2
    if letter in ("G", "X"):
        raise BadRegex(f"the regular expression {pattern!r}: \\{letter} is not supported")
    return pattern[index : index + 2], index + 2


def _posix(pattern: str, index: int, in_class: bool) -> tuple[str, int]:
    match = re.compile(r"\\([pP])(?:\{(\w+)\}|(\w))").match(pattern, index)
    name = (match.group(2) or match.group(3)) if match else ""
    members = _POSIX.get(name)
    if match is None or members is None:
        raise BadRegex(f"the regular expression {pattern!r}: class {name!r} is not supported")
    negated = match.group(1) == "P"
    if in_class:
        if negated:
            raise BadRegex(
                f"the regular expression {pattern!r}: \\P inside a class is not supported"
            )
        return members, match.end()
    return f"[{'^' if negated else ''}{members}]", match.end()
