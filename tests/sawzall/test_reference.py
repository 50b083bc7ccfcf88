"""Every example of the language's reference does what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mrstream.saw.library import names
from mrstream.saw.source import Refused
from mrstream.saw.tables.registry import KINDS
from tests.saw_runs import csv_of

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "saw-language.md"
TEXT = PAGE.read_text(encoding="utf-8")
_EXAMPLE = re.compile(
    r"^```sawzall(?P<words>[^\n]*)\n(?P<program>.*?)^```\n"
    r"(?:```records\n(?P<records>.*?)^```\n)?"
    r"```(?P<kind>csv|refused)\n(?P<result>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = list(_EXAMPLE.finditer(TEXT))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda match: match["program"].split("\n")[0])
def test_an_example_does_what_the_page_says(example: re.Match[str]) -> None:
    records = (example["records"] or "\n").splitlines()
    ignore = "--ignore_undefs" in example["words"]
    if example["kind"] == "refused":
        with pytest.raises(Refused, match=re.escape(f"p.szl:{example['result'].strip()}")):
            csv_of(example["program"], records)
        return

    assert csv_of(example["program"], records, ignore_undefs=ignore) == example["result"]


def test_every_program_of_the_page_is_an_example() -> None:
    assert len(EXAMPLES) == TEXT.count("```sawzall") >= 14


def test_the_page_names_every_function_and_every_table() -> None:
    words = set(re.findall(r"\w+", TEXT))
    by_range = {"trunctomonth", "trunctoday", "trunctohour", "trunctominute"}  # "year … second"

    assert sorted((names() | set(KINDS)) - words - by_range) == []
