"""Small promises of the tree: no notes to self, and a place for every package in the build."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("cluster", "dfs", "mapreduce", "streaming", "tui", "view")


def test_no_fixme_lands() -> None:
    marks = re.compile(r"\b(FIXME|TODO|XXX)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]

    assert found == []


def test_every_package_is_in_the_build() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = [
        str(path.parent.relative_to(ROOT)).replace("/", ".")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("__init__.py"))
    ]

    assert sorted(listed) == sorted(there)
