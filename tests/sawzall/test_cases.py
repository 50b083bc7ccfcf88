"""The cases, as a user runs them on one machine: `mrstream saw`, then `mrstream dump`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sawzall.sawzall_cases import CASES, Case
from tests.support.local_jobs import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def run(desk: Desk, case: Case, shards: int = 3) -> tuple[int, str]:
    """Run a case; give its exit status and its CSV, or what was said."""
    ran = desk.run(
        *("saw", "--program", str(case.program), "--input_files", str(case.input)),
        *("--destination", f"{desk.out}@{shards}", *case.words),
    )
    if ran.status:
        return ran.status, ran.stderr
    dumped = desk.run("dump", "--source", f"{desk.out}@{shards}", "--format", "csv")
    assert dumped.status == 0, dumped.stderr
    return 0, dumped.stdout.decode()


def test_there_are_all_cases() -> None:
    assert len(CASES) == 31


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.is_refused])
def test_a_program_gives_its_tables(desk: Desk, name: str) -> None:
    """SZ-01 … SZ-16, SZ-20 … SZ-25, SZ-27, SZ-29, SZ-30: one case each, or several."""
    status, printed = run(desk, CASES[name])

    assert (status, printed) == (0, CASES[name].expected)
    assert desk.left_behind() == []


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_refused])
def test_a_faulty_program_is_refused_at_its_place(desk: Desk, name: str) -> None:
    """SZ-22 (§8, §11): before anything runs, but for values that only data makes undefined."""
    case = CASES[name]

    status, said = run(desk, case)

    assert status == 1
    assert f"program.szl:{case.expected.strip()}" in said
    assert ("Running job" in said) == case.stops
    assert not (desk.out / "_SUCCESS").exists()
