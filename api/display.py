"""How far a job is, shown while somebody waits: a line on a terminal, a bar in a notebook.

Takes a result; draws nothing where nobody looks.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Protocol


class Shown(Protocol):
    """What can be shown: a `Result`."""

    @property
    def job_id(self) -> str: ...
    @property
    def percents(self) -> tuple[int, int]: ...


class Nothing:
    """Nobody looks."""

    def update(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Nothing to take away."""


class Line(Nothing):
    """One line on a terminal, drawn over again and taken away at the end."""

    def __init__(self, result: Shown) -> None:
        self._result = result

    def update(self) -> None:
        """Draw it."""
        maps, reduces = self._result.percents
        job = self._result.job_id or "starting"
        sys.stderr.write(f"\r\x1b[K{job}  map {maps}%  reduce {reduces}%")
        sys.stderr.flush()

    def close(self) -> None:
        """Take it away."""
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class Bar(Nothing):
    """The HTML of the result in a notebook, replaced as it changes."""

    def __init__(self, result: Shown) -> None:
        display = importlib.import_module("IPython.display")  # a notebook brings it with it
        self._result = result
        self._handle: Any = display.display(result, display_id=True)

    def update(self) -> None:
        """Draw it anew."""
        self._handle.update(self._result)

    def close(self) -> None:
        """Draw how it ended."""
        self._handle.update(self._result)


def _is_notebook() -> bool:
    """Whether this process is a notebook's kernel, not one that has only loaded its library."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


def display_for(result: Shown, progress: bool | None) -> Nothing:
    """Return what shows a result here; `progress` is what the user asked for, if anything."""
    if progress is False:
        return Nothing()
    if _is_notebook():
        return Bar(result)
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Line(result) if is_terminal or progress else Nothing()
