"""What is written as a test is run by `make test`."""

from __future__ import annotations

import re

from tests.house.tree import ROOT


def test_every_folder_of_tests_is_in_the_gate() -> None:
    gate = (ROOT / "Makefile").read_text().split("\ntest:", 1)[1].split("\ncheck:", 1)[0]
    run = set(re.findall(r"\btests/(\w+)(?=[ \n]|$)", gate))
    there = {
        path.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").rglob("test_*.py")
        if "cases" not in path.parts
    }

    assert sorted(there - run) == []
