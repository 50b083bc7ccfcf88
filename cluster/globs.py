"""Hadoop's patterns for paths, `a/{b,c}/part-*`: the one language of `-input` and of the dfs.

    *  any characters   ?  one   [a-z] [^a] [!a]  one of (or none of) these   {a,b}  either
    \\x  the character x itself

No `*` or `?` matches a slash: a pattern is matched a component at a time. Braces may hold slashes
and braces; inside `[…]` they are characters like any other. Never lists anything.
"""

from __future__ import annotations

import re

BRACES_MAX = 1000
"""Patterns that one pattern with braces may stand for."""


class BadGlob(ValueError):
    """A pattern that means nothing; says why, and at which character."""


def has_wildcard(pattern: str) -> bool:
    """Is a word a pattern: has it an unquoted `*`, `?`, `[` or `{`?"""
    return re.search(r"[*?\[{]", re.sub(r"\\.", "", pattern, flags=re.DOTALL)) is not None


def unquoted(pattern: str) -> str:
    """Return what a pattern without wildcards names."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def expand_braces(pattern: str) -> list[str]:
    """Write `a{b,c}` out as `ab` and `ac`."""
    expanded: list[str] = []
    waiting = [pattern]
    while waiting:
        one = waiting.pop()
        opening = _find_opening(one)
        if opening < 0:
            expanded.append(one)
        else:
            parts, closing = _alternatives(one, opening)
            waiting += [one[:opening] + part + one[closing + 1 :] for part in reversed(parts)]
        if len(expanded) + len(waiting) > BRACES_MAX:
            raise BadGlob(f"stands for more than {BRACES_MAX} patterns")
    return expanded


def component_regex(component: str) -> re.Pattern[str]:
    """Translate one component of a path (no braces left in it) to a regular expression."""
    out: list[str] = []
    index = 0
    while index < len(component):
        character = component[index]
        if character == "\\" and index + 1 < len(component):
            index += 1
            out.append(re.escape(component[index]))
        elif character == "*":
            out.append(".*")
        elif character == "?":
            out.append(".")
        elif character == "[":
            body, index = _character_class(component, index)
            out.append(body)
        else:
            out.append(re.escape(character))
        index += 1
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error as error:
        raise BadGlob(str(error)) from None


def _find_opening(pattern: str) -> int:
    """Return where a brace first stands unquoted and outside `[…]`, or -1."""
    index, in_class = 0, False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = "]" in pattern[index + 1 :]
        elif character == "{":
            return index
        index += 1
    return -1


def _alternatives(pattern: str, opening: int) -> tuple[list[str], int]:
    """Return what stands between the commas of a brace, and where it closes."""
    parts: list[str] = []
    depth, start, index = 0, opening + 1, opening
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                parts.append(pattern[start:index])
                return parts, index
        elif character == "," and depth == 1:
            parts.append(pattern[start:index])
            start = index + 1
        index += 1
    raise BadGlob(f"Unclosed group near index {len(pattern)}")


def _character_class(component: str, opening: int) -> tuple[str, int]:
    """Translate `[a-z]`, `[^a]`, `[!a]`; return the regex and where the bracket closes."""
    out = ["["]
    index = opening + 1
    if component[index : index + 1] in ("!", "^"):
        out.append("^")
        index += 1
    first = index
    while index < len(component):
        character = component[index]
        if character == "]" and index > first:
            return "".join(out) + "]", index
        if character == "\\" and index + 1 < len(component):
            index += 1
            out.append("\\" + component[index])
        elif character in "[]\\^&|~":
            out.append("\\" + character)
        else:
            out.append(character)
        index += 1
    raise BadGlob(f"Unclosed character class near index {len(component)}")
