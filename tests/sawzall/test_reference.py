"""Every example of the language's reference does what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf import json_format

from mrstream.mapreduce.job import saw_protos
from mrstream.saw.library import names
from mrstream.saw.source import Refused
from mrstream.saw.tables.registry import KINDS
from mrstream.streaming.formats.proto_rows import message_class
from tests.support.saw_runs import csv_of

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "saw-language.md"
TEXT = PAGE.read_text(encoding="utf-8")
_EXAMPLE = re.compile(
    r"^(?:```proto (?P<proto>\S+)\n(?P<described>[^`]*)^```\n)?"
    r"```sawzall(?P<words>[^\n]*)\n(?P<program>.*?)^```\n"
    r"(?:```(?:records|messages (?P<message>\w+))\n(?P<records>.*?)^```\n)?"
    r"```(?P<kind>csv|refused)\n(?P<result>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = list(_EXAMPLE.finditer(TEXT))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda match: match["program"].split("\n")[0])
def test_an_example_does_what_the_page_says(example: re.Match[str], tmp_path: Path) -> None:
    protos = described(example, tmp_path)
    records: list[bytes | str] = [*(example["records"] or "\n").splitlines()]
    if example["message"]:
        message = message_class(protos[example["proto"]], example["message"])
        records = [json_format.Parse(text, message()).SerializeToString() for text in records]
    if example["kind"] == "refused":
        with pytest.raises(Refused, match=re.escape(f"p.szl:{example['result'].strip()}")):
            csv_of(example["program"], records)
        return
    ignore = "--ignore_undefs" in example["words"]

    found = csv_of(example["program"], records, ignore_undefs=ignore, protos=protos)

    assert found == example["result"]


def described(example: re.Match[str], room: Path) -> dict[str, bytes]:
    """Compile the file that stands before an example, if one does."""
    if not example["proto"]:
        return {}
    (room / example["proto"]).write_text(example["described"])
    return saw_protos.compiled([example["proto"]], str(room / "p.szl"))


def test_every_program_of_the_page_is_an_example() -> None:
    assert len(EXAMPLES) == TEXT.count("```sawzall") >= 14


def test_the_page_names_every_function_and_every_table() -> None:
    words = set(re.findall(r"\w+", TEXT))
    by_range = {"trunctomonth", "trunctoday", "trunctohour", "trunctominute"}  # "year … second"

    assert sorted((names() | set(KINDS)) - words - by_range) == []
