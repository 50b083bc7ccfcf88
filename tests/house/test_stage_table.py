"""The path of a record: the table in mapreduce/dataflow and the modules' docstrings agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "mapreduce" / "dataflow"


def test_each_stage_of_the_table_is_a_module_that_says_its_number() -> None:
    table = ast.get_docstring(ast.parse((FOLDER / "__init__.py").read_text())) or ""
    stages = re.findall(r"^\s*(\d+) +(\w+) ", table, re.MULTILINE)

    said = []
    for number, name in stages:
        doc = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or ""
        said.append((number, name, doc.startswith(f"Stage {number}:")))

    assert [int(number) for number, _ in stages] == list(range(1, 11))
    assert [entry for entry in said if not entry[2]] == []


def test_no_other_module_claims_to_be_a_stage() -> None:
    table = (FOLDER / "__init__.py").read_text()
    claims = [
        path.stem
        for path in FOLDER.glob("*.py")
        if (ast.get_docstring(ast.parse(path.read_text())) or "").startswith("Stage ")
    ]

    assert [name for name in claims if f" {name} " not in table] == []
