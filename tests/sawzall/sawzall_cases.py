"""The cases of `cases/`: each a program, its input, and what must come of it (README.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """One case."""

    folder: Path

    @property
    def program(self) -> Path:
        """The program's file."""
        return self.folder / "program.szl"

    @property
    def input(self) -> Path:
        """The records, one a line."""
        return self.folder / "input"

    @property
    def expected(self) -> str:
        """The CSV of its tables, or the beginning of the fault's place."""
        return (self.folder / "expected").read_text(encoding="utf-8")

    @property
    def words(self) -> list[str]:
        """Words for `saw`."""
        path = self.folder / "args"
        return path.read_text().split() if path.exists() else []

    @property
    def is_refused(self) -> bool:
        """Whether it ends with a fault, before or while it runs."""
        return (self.folder / "exit").exists()

    @property
    def stops(self) -> bool:
        """Whether that is while it runs."""
        return (self.folder / "args.kind").exists()


CASES = {path.name: Case(path) for path in sorted(FOLDER.iterdir())}
