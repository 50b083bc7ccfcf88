"""What code, tests and documents cite is in the repository: requirements, the streaming contract,
fault gates. And what the papers ask at the core has a test, or a line that says why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import PACKAGES, ROOT

SYSTEMS = "GFS|MR|P4|NU|MU|CH|BT|SZ|GC|SM|EV"
ID = re.compile(rf"\b({SYSTEMS})-(\d\d)\b")
ID_RANGE = re.compile(rf"\b({SYSTEMS})-(\d\d) (?:…|\.\.\.|to) (?:({SYSTEMS})-)?(\d\d)\b")
SECTION = re.compile(r"\bspec (\d+(?:\.\d+)?)\b")
GATES = re.compile(r"(?:\b|_)[Gg]ates?[ _](\d+(?:(?:, | and )\d+)*)(?:\b|_)")
NOT_CITING = {"README.md", "requirements.md", "performance.md"}
"""Documents that count other gates, or make the list itself."""


def sources(*folders: str) -> Iterator[tuple[Path, str]]:
    """Every Python file, and every document where no folder is named."""
    for folder in folders or (".",):
        for path in sorted((ROOT / folder).rglob("*.py" if folders else "*.*")):
            parts = path.relative_to(ROOT).parts
            if path.suffix not in (".py", ".md") or parts[0].startswith((".", "mrstream")):
                continue
            if path == Path(__file__) or (path.suffix == ".md" and path.name in NOT_CITING):
                continue
            yield path.relative_to(ROOT), path.read_text()


def ids_in(text: str) -> set[str]:
    """The requirements that a text cites, ranges written out."""
    found = {f"{system}-{number}" for system, number in ID.findall(text)}
    for system, first, _, last in ID_RANGE.findall(text):
        found |= {f"{system}-{number:02}" for number in range(int(first), int(last) + 1)}
    return found


def requirements() -> dict[str, str]:
    """Id → level, of docs/requirements.md."""
    text = (ROOT / "docs" / "requirements.md").read_text()
    return dict(re.findall(rf"^- ((?:{SYSTEMS})-\d\d) \[(core|ref|ops)\]", text, re.MULTILINE))


def excused() -> set[str]:
    """Core requirements that docs/requirements.md says have no test."""
    text = (ROOT / "docs" / "requirements.md").read_text()
    table = text.split("## 13. Core requirements without a test", 1)[1]
    return ids_in("\n".join(row.split("|")[1] for row in table.splitlines() if "|" in row))


def test_every_requirement_that_is_cited_is_there() -> None:
    known = requirements()
    lost = [
        (str(path), one) for path, text in sources() for one in ids_in(text) if one not in known
    ]

    assert len(known) > 350
    assert lost == []


def test_every_core_requirement_has_a_test_or_a_reason() -> None:
    tested = {one for _, text in sources("tests") for one in ids_in(text)}
    core = {one for one, level in requirements().items() if level == "core"}

    assert sorted(core - tested - excused()) == []
    assert sorted(core & tested & excused()) == [], "tested by now: take the line away"


def test_every_section_of_the_streaming_contract_that_is_cited_is_there() -> None:
    text = (ROOT / "docs" / "spec.md").read_text()
    sections = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\b", text, re.MULTILINE))
    cited = [(str(path), one) for path, text in sources() for one in SECTION.findall(text)]

    assert len(cited) > 30
    assert [(path, one) for path, one in cited if one not in sections] == []


def test_every_golden_case_that_the_streaming_contract_cites_is_there() -> None:
    text = (ROOT / "docs" / "spec.md").read_text()
    cited = set(re.findall(r"\*([a-zA-Z]\w*_\w+)\*", text))
    cases = {path.parent.name for path in (ROOT / "tests/conformance/cases").glob("*/args")}

    assert len(cited) > 60
    assert sorted(cited - cases) == []


def test_every_fault_gate_is_cited_by_a_test_and_every_one_cited_is_there() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    gates = {int(one) for one in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    cited = {
        int(number)
        for _, text in sources("tests")
        for numbers in GATES.findall(text)
        for number in re.findall(r"\d+", numbers)
    }

    assert gates == set(range(1, 32))
    assert sorted(cited - gates) == []
    assert sorted(gates - cited) == [29], "the soak itself"


def invariants() -> set[str]:
    """Those that ARCHITECTURE.md names, or says where they are listed."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Invariants", 1)[1].split("\n## ")[0]
    named = set(re.findall(r"^\| ([A-Z]\d) \|", text, re.MULTILINE))
    row = r"^\| ([A-Z])1 to [A-Z](\d) \|[^|]*\| listed in `([^`]+)` \|"
    for letter, last, place in re.findall(row, text, re.MULTILINE):
        listed = set(re.findall(rf"\b{letter}\d\b", (ROOT / place).read_text()))
        assert {f"{letter}{number}" for number in range(1, int(last) + 1)} == listed, place
        named |= listed
    return named


def test_every_invariant_that_is_cited_is_in_the_architecture() -> None:
    """By its id in brackets, or before a colon; the course's protocol has ids of its own."""
    known = invariants()
    cited = re.compile(r"\(([A-Z]\d)\)|\b([A-Z]\d): [a-z{]")
    lost = [
        (str(path), one)
        for path, text in sources(*PACKAGES)
        for pair in cited.findall(text)
        if path.parts[:2] != ("mapreduce", "p4") and (one := pair[0] or pair[1]) not in known
    ]

    assert len(known) > 40
    assert lost == []


def test_every_decision_that_is_cited_has_its_page() -> None:
    pages = {int(path.name[:2]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    cited = [
        (str(path), int(number))
        for path, text in sources()
        for number in re.findall(r"\b[Dd]ecisions? \[?(\d\d?)\b", text)
    ]

    assert len(cited) > 15
    assert [one for one in cited if one[1] not in pages] == []
