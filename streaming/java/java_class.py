"""Character classes of Java's regular expressions, as sets of code points.

`[a-z&&[^aeiou]]`, `\\p{Lu}`, `\\P{IsLatin}`, classes in classes: what Python's `re` has no word for
becomes the ranges that it means. `parse_class` reads a class, `members` gives a named one;
`written` is a set as Python writes it. Pure.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache, reduce
from itertools import chain

Ranges = tuple[tuple[int, int], ...]
"""First and last of each run, in order, with gaps between them."""

LAST = sys.maxunicode
NEST_MAX = 50


class UnknownClass(Exception):
    """No class of that name, or not a class at all; its text says what."""


def joined(*sets: Ranges) -> Ranges:
    """Return the union."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(chain(*sets)):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def without(ranges: Ranges) -> Ranges:
    """Return all other code points."""
    found, at = [], 0
    for first, last in ranges:
        if at < first:
            found.append((at, first - 1))
        at = last + 1
    return (*found, (at, LAST)) if at <= LAST else tuple(found)


def common(left: Ranges, right: Ranges) -> Ranges:
    """Return the intersection."""
    return without(joined(without(left), without(right)))


def written(ranges: Ranges) -> str:
    """Return the class that Python's `re` reads as these code points."""
    if not ranges:
        return "(?!)"
    inside = (_point(a) if a == b else f"{_point(a)}-{_point(b)}" for a, b in ranges)
    return f"[{''.join(inside)}]"


def _point(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\U{code:08x}"


def _of(text: str) -> Ranges:
    """Read `a-zA-Z_`: pairs with a dash, or single characters."""
    found, at = [], 0
    while at < len(text):
        last = text[at + 2] if text[at + 1 : at + 2] == "-" and at + 2 < len(text) else text[at]
        found.append((ord(text[at]), ord(last)))
        at += 3 if text[at + 1 : at + 2] == "-" and at + 2 < len(text) else 1
    return joined(tuple(found))


# --- classes with a name

_ASCII: dict[str, Ranges] = {
    "Lower": _of("a-z"),
    "Upper": _of("A-Z"),
    "ASCII": ((0, 127),),
    "Alpha": _of("a-zA-Z"),
    "Digit": _of("0-9"),
    "Alnum": _of("a-zA-Z0-9"),
    "Punct": _of("!-/:-@[-`{-~"),
    "Graph": _of("!-~"),
    "Print": _of(" -~"),
    "Blank": _of(" \t"),
    "Cntrl": ((0, 31), (127, 127)),
    "XDigit": _of("0-9a-fA-F"),
    "Space": _of(" \t\n\x0b\f\r"),
}
ESCAPED: dict[str, Ranges] = {
    "d": _of("0-9"),
    "w": _of("a-zA-Z_0-9"),
    "s": _of(" \t\n\x0b\f\r"),
    "h": joined(_of(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),)),
    "v": _of("\n\x0b\f\r\x85\u2028\u2029"),
}
ESCAPED |= {name.upper(): without(ranges) for name, ranges in ESCAPED.items()}
_CATEGORIES = frozenset((
    "L", "M", "N", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
    "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc",
    "Cf", "Co", "Cs", "Cn",
))  # fmt: skip
# Where case does not count, each of these is all of its kind.
_CASED = frozenset(("lu", "ll", "lt", "uppercase", "lowercase", "titlecase"))
# Of the scripts, those whose letters people match by name; any other is refused by its name.
_SCRIPTS: dict[str, Ranges] = {
    "latin": (
        *((0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6)),
        *((0xF8, 0x2B8), (0x2E0, 0x2E4), (0x1D00, 0x1D25), (0x1D2C, 0x1D5C), (0x1D62, 0x1D65)),
        *((0x1D6B, 0x1D77), (0x1D79, 0x1DBE), (0x1E00, 0x1EFF), (0x2071, 0x2071)),
        *((0x207F, 0x207F), (0x2090, 0x209C), (0x212A, 0x212B), (0x2132, 0x2132)),
        *((0x214E, 0x214E), (0x2160, 0x2188), (0x2C60, 0x2C7F), (0xA722, 0xA787)),
        *((0xA78B, 0xA7CA), (0xA7F2, 0xA7FF), (0xAB30, 0xAB5A), (0xAB5C, 0xAB64)),
        *((0xAB66, 0xAB69), (0xFB00, 0xFB06), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)),
    ),
    "greek": (
        *((0x370, 0x373), (0x375, 0x377), (0x37A, 0x37D), (0x37F, 0x37F), (0x384, 0x384)),
        *((0x386, 0x386), (0x388, 0x38A), (0x38C, 0x38C), (0x38E, 0x3A1), (0x3A3, 0x3E1)),
        *((0x3F0, 0x3FF), (0x1D26, 0x1D2A), (0x1D5D, 0x1D61), (0x1D66, 0x1D6A)),
        *((0x1DBF, 0x1DBF), (0x1F00, 0x1F15), (0x1F18, 0x1F1D), (0x1F20, 0x1F45)),
        *((0x1F48, 0x1F4D), (0x1F50, 0x1F57), (0x1F59, 0x1F59), (0x1F5B, 0x1F5B)),
        *((0x1F5D, 0x1F5D), (0x1F5F, 0x1F7D), (0x1F80, 0x1FB4), (0x1FB6, 0x1FC4)),
        *((0x1FC6, 0x1FD3), (0x1FD6, 0x1FDB), (0x1FDD, 0x1FEF), (0x1FF2, 0x1FF4)),
        *((0x1FF6, 0x1FFE), (0x2126, 0x2126), (0xAB65, 0xAB65), (0x10140, 0x1018E)),
        *((0x101A0, 0x101A0), (0x1D200, 0x1D245)),
    ),
    "cyrillic": (
        *((0x400, 0x484), (0x487, 0x52F), (0x1C80, 0x1C88), (0x1D2B, 0x1D2B), (0x1D78, 0x1D78)),
        *((0x2DE0, 0x2DFF), (0xA640, 0xA69F), (0xFE2E, 0xFE2F)),
    ),
}  # fmt: skip


def members(name: str, *, any_case: bool = False) -> Ranges:
    """Return the code points of `\\p{name}`: POSIX names, general categories, binary properties,
    a few scripts. Java's POSIX names are ASCII, its categories are not."""
    if any_case:
        if name in ("Lower", "Upper"):
            return _ASCII["Alpha"]
        bare = name.removeprefix("Is").removeprefix("gc=")
        if bare.lower() in _CASED:
            cased = joined(_category("Lu"), _category("Ll"), _category("Lt"))
            return cased if bare in _CATEGORIES else joined(cased, _of("ªº"))
    if name in _ASCII:
        return _ASCII[name]
    if name in _CATEGORIES:
        return _category(name)
    bare = name.removeprefix("Is")
    for key in ("general_category=", "gc=", "script=", "sc="):
        bare = bare.removeprefix(key)
    if bare in _CATEGORIES and bare != name:
        return _category(bare)
    if bare == name:
        raise UnknownClass(f"class {name!r} is not supported")
    found = _binary(bare.lower()) or _SCRIPTS.get(bare.lower())
    if found is None:
        raise UnknownClass(f"class {name!r} is not supported")
    return found


def _binary(name: str) -> Ranges | None:
    match name:
        case "alphabetic" | "javaalphabetic":
            return joined(_category("L"), _category("Nl"))
        case "letter":
            return _category("L")
        case "digit":
            return _category("Nd")
        case "uppercase":
            return _category("Lu")
        case "lowercase":
            return joined(_category("Ll"), _of("ªº"))
        case "punctuation":
            return _category("P")
        case "whitespace" | "white_space":
            return joined(ESCAPED["h"], ESCAPED["v"])
    return None


@cache
def word() -> Ranges:
    """Return what Java counts as part of a word at `\\b`: any letter or digit, not ASCII alone, and
    the marks that stand over them."""
    return joined(_category("L"), _category("Nd"), _category("Mn"), _of("_"))


@cache
def _category(name: str) -> Ranges:
    """Return the code points of a general category, or of all that begin with its letter."""
    found: list[tuple[int, int]] = []
    for code in range(LAST + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if found and found[-1][1] == code - 1:
                found[-1] = (found[-1][0], code)
            else:
                found.append((code, code))
    return tuple(found)


def named_at(pattern: str, at: int, *, any_case: bool) -> tuple[Ranges, int]:
    """Read `\\p{Name}`, `\\P{Name}` or `\\pL` at `at`; return its code points and where it ends."""
    if pattern[at + 2 : at + 3] == "{":
        end = pattern.find("}", at)
        if end < 0:
            raise UnknownClass("\\p{ has no end")
        name, behind = pattern[at + 3 : end], end + 1
    else:
        name, behind = pattern[at + 2 : at + 3], at + 3
    is_other = (pattern[at + 1] == "P") != name.startswith("^")
    found = members(name.removeprefix("^"), any_case=any_case)
    return without(found) if is_other else found, behind


# --- classes in brackets


def parse_class(
    pattern: str, at: int, *, any_case: bool = False, depth: int = 0
) -> tuple[Ranges, int]:
    """Read the class whose `[` is at `at`; return its code points and where it ends."""
    if depth > NEST_MAX:
        raise UnknownClass(f"classes nest deeper than {NEST_MAX}")
    at += 1
    is_other = pattern[at : at + 1] == "^"
    at += is_other
    parts: list[Ranges] = []  # what && stands between
    found: Ranges = ()
    is_first = True
    while at < len(pattern):
        if pattern[at] == "]" and not is_first:
            whole = reduce(common, [part for part in (*parts, found) if part] or [()])
            return without(whole) if is_other else whole, at + 1
        is_first = False
        if pattern.startswith("&&", at):
            parts, found, at = [*parts, found], (), at + 2
            continue
        more, at = _item(pattern, at, any_case, depth)
        found = joined(found, more)
    raise UnknownClass("unterminated character class")


def _item(pattern: str, at: int, any_case: bool, depth: int) -> tuple[Ranges, int]:
    """Read a class within, an escape that names several, a character or a range of them."""
    if pattern[at] == "[":
        return parse_class(pattern, at, any_case=any_case, depth=depth + 1)
    if pattern[at] == "\\":
        letter = pattern[at + 1 : at + 2]
        if letter in ("p", "P"):
            return named_at(pattern, at, any_case=any_case)
        if letter in ESCAPED and letter:
            return ESCAPED[letter], at + 2
        if letter == "Q":
            end = pattern.find("\\E", at)
            quoted = pattern[at + 2 : end if end >= 0 else len(pattern)]
            found = joined(tuple((ord(c), ord(c)) for c in quoted))
            return found, len(pattern) if end < 0 else end + 2
    first, at = _character(pattern, at)
    if pattern[at : at + 1] != "-" or pattern[at + 1 : at + 2] in ("]", "[", ""):
        return ((first, first),), at
    if pattern.startswith("-&&", at):
        return ((first, first),), at
    last, at = _character(pattern, at + 1)
    if last < first:
        raise UnknownClass(f"the range {chr(first)}-{chr(last)} runs backwards")
    return ((first, last),), at


_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}


def _character(pattern: str, at: int) -> tuple[int, int]:
    """Read one character, escaped or not."""
    if pattern[at] != "\\":
        return ord(pattern[at]), at + 1
    letter = pattern[at + 1 : at + 2]
    if letter in _CONTROLS and letter:
        return _CONTROLS[letter], at + 2
    if letter == "x" and pattern[at + 2 : at + 3] == "{":
        end = pattern.find("}", at)
        return _hexadecimal(pattern[at + 3 : end]), end + 1
    width = {"x": 2, "u": 4}.get(letter)
    if width is not None:
        return _hexadecimal(pattern[at + 2 : at + 2 + width]), at + 2 + width
    if letter == "0":
        end = at + 2
        while end < at + 5 and pattern[end : end + 1] in tuple("01234567"):
            end += 1
        return int(pattern[at + 1 : end], 8), end
    if not letter or letter.isalnum():
        raise UnknownClass(f"\\{letter} in a class is not supported")
    return ord(letter), at + 2


def _hexadecimal(digits: str) -> int:
    try:
        code = int(digits, 16)
    except ValueError:
        raise UnknownClass(f"{digits!r} is no hexadecimal number") from None
    if code > LAST:
        raise UnknownClass(f"{digits!r} is no character")
    return code
