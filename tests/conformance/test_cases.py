"""Would Hadoop Streaming give these bytes, this exit status, these messages and counters?

Every case in `cases/` was run by Hadoop 3.4.1 or 3.4.2; all of them must pass, and none is excused.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import cases

MRSTREAM = [sys.executable, "-P", "-m", "mrstream.streaming.cli"]


@pytest.mark.parametrize("name", cases.names())
def test_a_job_does_what_hadoop_did(name: str, tmp_path: Path) -> None:
    case = cases.Case(name)

    outcome = case.run(MRSTREAM, tmp_path)

    assert case.differences(outcome) == [], case.expected["title"]


def test_all_cases_are_here() -> None:
    assert len(cases.names()) == 214
