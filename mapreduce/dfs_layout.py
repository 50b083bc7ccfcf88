"""What mrstream itself keeps in the dfs: who stores it, who reads it and who clears it agree here.

/.mrstream/files/DIGEST{x|-}/NAME    a file that travels with jobs, by its content; x: runs
/.mrstream/environments/KEY/…        a Python environment of jobs, and `facts.json`, written last
/.mrstream/results/SUBMISSION/…      output that a client prints and then deletes
/.mrstream/history/JOB/…             reports of ended jobs, where masters are a group
/.mrstream/flows/FLOW/STEP.N         what steps of a flow write for others; the flow deletes it
/.mrstream/flows/FLOW/_flow/…        what is kept of a detached flow; `flow remove` deletes it
"""

from __future__ import annotations

STAGED = "/.mrstream/files"
STAGED_KEPT_S = 30 * 24 * 3600.0
"""A staged file goes this long after it was stored; one of half that age is stored again."""
ENVIRONMENTS = "/.mrstream/environments"
ENVIRONMENT_KEPT_S = 30 * 24 * 3600.0
"""An environment goes this long after a job last used it."""
ENVIRONMENT_NOTED_S = 24 * 3600.0
"""That it is used is noted again after so long."""
RESULTS = "/.mrstream/results"
HISTORY = "/.mrstream/history"
FLOWS = "/.mrstream/flows"
RESULTS_KEPT_S = 24 * 3600.0


def staged_path(digest: str, name: str, *, is_executable: bool) -> str:
    """Return where a file of this content and name lies."""
    return f"{STAGED}/{digest}{'x' if is_executable else '-'}/{name}"


def staged_key(path: str) -> str | None:
    """Return what names the content of a staged file; None if the file is a user's own."""
    return path.removeprefix(f"{STAGED}/") if path.startswith(f"{STAGED}/") else None


def environment_directory(key: str) -> str:
    return f"{ENVIRONMENTS}/{key}"


def environment_facts(key: str) -> str:
    """Return the file that says what an environment needs, and that it is whole."""
    return f"{ENVIRONMENTS}/{key}/facts.json"


def is_executable(staged_key: str) -> bool:
    """Whether the client could execute the file."""
    return staged_key.partition("/")[0].endswith("x")
