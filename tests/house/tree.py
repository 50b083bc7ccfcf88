"""The packages of the tree, and which of them each may import: the one list of both."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BELOW = {
    "cluster": {"cluster"},
    "streaming": {"streaming", "cluster"},
    "saw": {"saw", "cluster"},
    "dfs": {"dfs", "cluster"},
    "lock": {"lock", "cluster"},
    "mapreduce": {"mapreduce", "dfs", "saw", "streaming", "cluster"},
    "api": {"api", "mapreduce", "dfs", "streaming", "cluster"},
    "view": {"view", "mapreduce", "dfs", "streaming", "cluster"},
    "tui": {"tui", "view", "mapreduce", "cluster"},
    "web": {"web", "view", "mapreduce", "dfs", "streaming", "cluster"},
}
PACKAGES = tuple(sorted(BELOW))
