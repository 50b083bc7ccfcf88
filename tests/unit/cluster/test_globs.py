"""Patterns for paths: the same language for the dfs and for `-input`."""

from __future__ import annotations

import pytest

from mrstream.cluster.globs import (
    BRACES_MAX,
    BadGlob,
    component_regex,
    expand_braces,
    has_wildcard,
    unquoted,
)


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        ("a{b,c{d,e}}f", ["abf", "acdf", "acef"]),
        ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
        ("{a/b,c}/d", ["a/b/d", "c/d"]),
        ("a{,x}", ["a", "ax"]),
        (r"a\{b", [r"a\{b"]),
        (r"{a\,b,c}", [r"a\,b", "c"]),
        ("a[{]b", ["a[{]b"]),
        ("a}b", ["a}b"]),
    ],
)
def test_braces_are_written_out(pattern: str, plain: list[str]) -> None:
    """Spec 3.1; they may hold slashes and nest, a backslash quotes, a class is left alone."""
    assert expand_braces(pattern) == plain


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a*c", ["ac", "abc", "a\nc"], ["acd"]),
        ("a?c", ["abc", "aéc"], ["ac", "abbc"]),
        ("[a-c]x", ["bx"], ["dx", "-x"]),
        ("[^a]", ["b"], ["a"]),
        ("[!a]", ["!", "b"], ["a"]),
        ("[]a]", ["]", "a"], ["b"]),
        (r"[\]a]", ["]", "a"], ["\\"]),
        ("[a^]", ["a", "^"], ["b"]),
        ("[[]", ["["], ["]"]),
        (r"\*", ["*"], ["a"]),
        ("a.c", ["a.c"], ["abc"]),
        ("a\\", ["a\\"], ["a"]),
    ],
)
def test_a_component_matches_as_hadoops_does(pattern: str, yes: list[str], no: list[str]) -> None:
    match = component_regex(pattern).fullmatch

    assert [name for name in (*yes, *no) if match(name)] == yes


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a{b", "Unclosed group near index 3"),
        ("a[b", "Unclosed character class near index 3"),
        ("[z-a]", "bad character range"),
        ("{a,b}" * 10, f"more than {BRACES_MAX} patterns"),
    ],
)
def test_what_means_nothing_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(BadGlob, match=why):
        for plain in expand_braces(pattern):
            component_regex(plain)


def test_a_quoted_wildcard_is_a_name() -> None:
    assert [has_wildcard(word) for word in ("a*", "{a}", "[a]", "?", r"\*\{\[\?", "a")] == [
        True, True, True, True, False, False,
    ]  # fmt: skip
    assert unquoted(r"x\*y\\") == "x*y\\"
