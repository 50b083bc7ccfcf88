"""Small promises of the tree: no notes to self, and every library that it needs declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib

from mrstream.cluster.config import extras
from tests.house.tree import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Where a library is not imported by the name that it is installed by.
IMPORTED_AS = {"grpcio-tools": "grpc_tools", "protobuf": "google.protobuf", "pyyaml": "yaml"}


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


def modules_of(requirements: list[str]) -> list[str]:
    names = [re.split(r"[<>=!~;\[ ]", item, maxsplit=1)[0].lower() for item in requirements]
    return sorted(IMPORTED_AS.get(name, name) for name in names)


def test_every_extra_is_declared_as_it_is_looked_for() -> None:
    """What `up` installs and what a refusal looks for must be the same libraries."""
    declared = dict(PROJECT["project"]["optional-dependencies"])

    assert declared.pop("all") == [f"mrstream[{','.join(extras.MODULES)}]"]
    assert {name: modules_of(items) for name, items in declared.items()} == {
        name: sorted(modules) for name, modules in extras.MODULES.items()
    }


def test_every_library_that_is_imported_is_declared() -> None:
    """One that only comes along with another is gone when that other changes its mind."""
    project = PROJECT["project"]
    declared = {name.split(".")[0] for name in modules_of(project["dependencies"])}
    declared |= {name.split(".")[0] for names in extras.MODULES.values() for name in names}
    imported = {
        name.split(".")[0]
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert sorted(imported - declared - set(sys.stdlib_module_names) - {"mrstream"}) == []
