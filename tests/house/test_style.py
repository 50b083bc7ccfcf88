"""One way to write what every module has: docstrings of functions, constants, rules of sections.

And tests that say what they test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.tree import PACKAGES, ROOT

GIVE_AWAY = {
    "_deal", "_process_for", "columns", "decide", "give_up_ballast", "laid_out", "set_aside",
    "watched",
}  # fmt: skip
"""Functions that return something and yet give: to somebody, a name, or up."""
VERB = re.compile(r'"""(Give|Gives|Returns|Yields)\b')
YES_OR_NO = re.compile(r'"""(Say|Says|Tell|Tells|Return|Returns) (whether|if)\b')
BOUND = re.compile(r"^(_?[A-Z][A-Z0-9_]+)(?:: [^=\n]+)? = ", re.MULTILINE)
AGAIN = re.compile(r"^\s+global\b.*\b_?[A-Z][A-Z0-9_]+\b|: Final\b", re.MULTILINE)
ANY_RULE = re.compile(r"^[ \t]*#(?: ?-{2,}.*|.*-{3,}[ \t]*)$", re.MULTILINE)
RULE = re.compile(r"\s*# --- \S.*[^-]")
SENTENCE_WORDS_MIN = 3


def texts() -> Iterator[tuple[str, str]]:
    """Every module of the product, by its name."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def test_what_a_function_returns_its_docstring_calls_return_or_yield() -> None:
    """In the imperative, as PEP 257 has it: no `Returns`, no `Gives`; to give is to give away."""
    wrong = []
    for name, text in texts():
        for node in ast.walk(ast.parse(text)) if VERB.search(text) else ():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first = (ast.get_docstring(node) or "").split(" ", 1)[0].rstrip(",.")
            returns = node.returns and ast.unparse(node.returns) not in ("None", "NoReturn")
            gives = first == "Give" and returns and node.name not in GIVE_AWAY
            if first in ("Returns", "Gives", "Yields") or gives:
                wrong.append(f"{name}:{node.lineno} {node.name}")

    assert wrong == []


def test_what_answers_yes_or_no_begins_with_whether_or_asks() -> None:
    """`Whether it is there.` or `Is it there?`, and no verb of telling before it."""
    wrong = [f"{name}: {found[0]}" for name, text in texts() for found in YES_OR_NO.finditer(text)]

    assert wrong == []


def test_a_constant_is_a_name_in_capitals_that_is_bound_once() -> None:
    """The capitals say it; `Final` would say it again, in some modules and not in others."""
    wrong = []
    for name, text in texts():
        bound = BOUND.findall(text)
        wrong += [f"{name}: {each} is bound again" for each in set(bound) if bound.count(each) > 1]
        wrong += [f"{name}: {found[0].strip()}" for found in AGAIN.finditer(text)]

    assert wrong == []


def test_sections_are_divided_by_one_rule() -> None:
    """`# --- what comes`, and nothing behind it that would have to be counted out."""
    wrong = [
        f"{name}: {line.strip()}"
        for name, text in texts()
        for line in ANY_RULE.findall(text)
        if not RULE.fullmatch(line)
    ]

    assert wrong == []


def test_a_test_says_what_holds_in_its_name_and_why_in_its_docstring() -> None:
    """A name of one or two words is a topic; a docstring that repeats the name is noise."""
    wrong = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        name = str(path.relative_to(ROOT))
        if not ast.get_docstring(tree):
            wrong.append(f"{name}: what is tested here?")
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first, *words = node.name.split("_")
            if first != "test" or not words:  # `test` is what some tests call their inner function
                continue
            told = re.findall("[a-z0-9]+", (ast.get_docstring(node) or "").lower())
            if told == words or (not told and len(words) < SENTENCE_WORDS_MIN):
                wrong.append(f"{name}:{node.lineno} {node.name}")

    assert wrong == []
