"""From text to tokens: names, numbers, strings, operators; comments and blanks are dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from mrstream.saw.source import Faulty

INT_MAX = 2**63 - 1
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\r\n]+|\#[^\n]*)
    | (?P<prefixed>[BT](?="))
    | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
    | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?
        |\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<int>0[xX][0-9a-fA-F]+|[0-9]+)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<raw>`[^`]*`)
    | (?P<char>'(?:[^'\\\n]|\\(?:[uU][0-9a-fA-F]+|.))')
    | (?P<op><-|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^~!<>=(){}\[\],;:.])
    """,
    re.VERBOSE,
)


class Token(msgspec.Struct, frozen=True):
    """A word of the text; `value` is that of a literal."""

    kind: str
    text: str
    at: int
    value: int | float | str | bytes | None = None

    def __str__(self) -> str:
        return "the end of the program" if self.kind == "end" else self.text


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a program, with an `end` behind the last."""
    at = 0
    prefix = ""
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Faulty(at, _unreadable(text, at))
        kind = match.lastgroup or ""
        word = match.group()
        if kind == "prefixed":
            prefix = word
        elif kind != "blank":
            yield _token(kind, word, at - len(prefix), prefix)
            prefix = ""
        at = match.end()
    yield Token("end", "", len(text))


def _token(kind: str, word: str, at: int, prefix: str) -> Token:
    match kind:
        case "int":
            value = int(word, 0) if word[:2] in ("0x", "0X") else int(word)
            if value > INT_MAX + (word[:1] != "0"):  # -9223372036854775808 is a minus and this
                raise Faulty(at, f"{word} is larger than an int can be ({INT_MAX})")
            return Token("int", word, at, value)
        case "float":
            return Token("float", word, at, float(word))
        case "string":
            if prefix == "B":
                return Token("bytes", word, at, _bytes(word[1:-1], at + 1))
            plain = unescaped(word[1:-1], at + 1)
            return Token("time" if prefix == "T" else "string", prefix + word, at, plain)
        case "raw":
            return Token("string", word, at, word[1:-1])
        case "char":
            return Token("int", word, at, ord(unescaped(word[1:-1], at + 1)))
    return Token(kind, word, at)


def unescaped(text: str, at: int) -> str:
    """Return the text that a literal with backslashes stands for."""
    return _ESCAPE.sub(lambda match: _letter(match, at), text) if "\\" in text else text


def _bytes(text: str, at: int) -> bytes:
    """Return the bytes that a literal stands for: letters as UTF-8, and `\\xff` is one byte."""
    found, end = b"", 0
    for match in _ESCAPE.finditer(text):
        code = match.group(1)
        is_byte = code[0] == "x" and len(code) > 1
        one = bytes.fromhex(code[1:]) if is_byte else _utf8(_letter(match, at))
        found += _utf8(text[end : match.start()]) + one
        end = match.end()
    return found + _utf8(text[end:])


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _letter(match: re.Match[str], at: int) -> str:
    code = match.group(1)
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        if number > 0x10FFFF:
            raise Faulty(at + match.start(), f"there is no character \\{code}")
        return chr(number)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code in "\\\"'":
        return code
    raise Faulty(at + match.start(), f"\\{code} means nothing; write \\\\ for a backslash")


def _unreadable(text: str, at: int) -> str:
    letter = text[at]
    if letter == '"':
        return "the string has no end on its line"
    if letter == "`":
        return "the raw string has no closing `"
    if letter == "'":
        return "a character is one letter between quotes"
    return f"{letter!r} begins nothing in this language"
