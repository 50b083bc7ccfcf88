"""ARCHITECTURE.md is always true: every module has its place on the map, and none is made up."""

from __future__ import annotations

import re

from tests.house.tree import PACKAGES, ROOT


def modules_in_the_tree() -> set[str]:
    return {
        str(path.relative_to(ROOT).with_suffix(""))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }


def modules_on_the_map() -> set[str]:
    """The section lists folders as headings (`### dfs/metadata/`) and modules in backticks."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split("## Where things are", 1)[1].split("\n## ", 1)[0]
    found = set()
    for part in section.split("\n### ")[1:]:
        folder = part.splitlines()[0].strip("`/ ")
        for cell in re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE):
            found |= {f"{folder}/{name}" for name in re.findall(r"`(\w+)`", cell)}
    return found


def test_every_module_is_on_the_map() -> None:
    assert sorted(modules_in_the_tree() - modules_on_the_map()) == []


def test_the_map_shows_no_module_that_is_not_there() -> None:
    assert sorted(modules_on_the_map() - modules_in_the_tree()) == []
