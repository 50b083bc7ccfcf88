"""Every requirement, rule and message of the course's protocol has a test that names it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PLACES = ["conformance/p4/test_*.py", "unit/mapreduce/p4/*.py", "simulation/test_p4.py",
          "property/mapreduce/test_p4.py"]  # fmt: skip


def cited() -> set[str]:
    """The ids in docstrings of tests, with what lies between two that are joined by …"""
    found: set[str] = set()
    for place in PLACES:
        for path in TESTS.glob(place):
            tree = ast.parse(path.read_text())
            defined = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
            text = " ".join(ast.get_docstring(node) or "" for node in defined)
            for kind, first, last in re.findall(r"(P4-|R|M)(\d+)(?: … (?:P4-|R|M)(\d+))?", text):
                found |= {f"{kind}{int(n)}" for n in range(int(first), int(last or first) + 1)}
    return found


def test_nothing_is_left_out() -> None:
    wanted = {f"P4-{n}" for n in range(1, 30)} | {f"R{n}" for n in range(1, 13)}
    wanted |= {f"M{n}" for n in range(1, 11)}

    assert sorted(wanted - cited()) == []
