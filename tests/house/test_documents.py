"""The documents point at what is there: every link, and every path of ours that they name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from tests.house.tree import PACKAGES, ROOT

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"]
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FOLDERS = "|".join([*PACKAGES, "mrstream", "tests", "docs", "examples"])
_PATH = re.compile(rf"`((?:{_FOLDERS})/[\w./-]*)`")


def anchors(path: Path) -> set[str]:
    """The headings of a document as links name them."""
    found = set()
    for title in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", title.lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    wrong = []
    for link in _LINK.findall(path.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)

    assert wrong == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_is_named_exists(path: Path) -> None:
    assert [name for name in _PATH.findall(path.read_text()) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("folder", ["decisions", "formats"])
def test_every_page_is_in_the_index_of_its_folder(folder: str) -> None:
    pages = {path.name for path in (ROOT / "docs" / folder).glob("*.md")} - {"README.md"}
    index = (ROOT / "docs" / folder / "README.md").read_text()

    assert sorted(pages - set(re.findall(r"\]\(([^)]+)\)", index))) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_piece_of_python_and_yaml_can_be_read(path: Path) -> None:
    """Two of the guide's programs had a character that no bytes literal may hold."""
    for language, text in _BLOCK.findall(path.read_text()):
        if language == "python":
            ast.parse(text)
        else:
            yaml.safe_load(text)
