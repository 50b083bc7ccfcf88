"""What mrstream itself keeps in the dfs: who stores it, who reads it and who clears it agree here.

/.mrstream/files/DIGEST{x|-}/NAME    a file that travels with jobs, by its content; x: runs
/.mrstream/results/SUBMISSION/…      output that a client prints and then deletes
"""

from __future__ import annotations

from typing import Final

STAGED: Final = "/.mrstream/files"
STAGED_KEPT_S: Final = 30 * 24 * 3600.0
"""A staged file goes this long after it was stored; one of half that age is stored again."""
RESULTS: Final = "/.mrstream/results"
RESULTS_KEPT_S: Final = 24 * 3600.0


def staged_path(digest: str, name: str, *, is_executable: bool) -> str:
    """Give where a file of this content and name lies."""
    return f"{STAGED}/{digest}{'x' if is_executable else '-'}/{name}"


def staged_key(path: str) -> str | None:
    """Give what names the content of a staged file; None if the file is a user's own."""
    return path.removeprefix(f"{STAGED}/") if path.startswith(f"{STAGED}/") else None


def is_executable(staged_key: str) -> bool:
    """Say whether the client could execute the file."""
    return staged_key.partition("/")[0].endswith("x")
