"""Whoever holds the dfs brain uses its doors: what goes round them goes round the simulator too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES

ROOT = Path(__file__).parent.parent.parent
INSIDE = ROOT / "dfs" / "metadata"
DOORS = {
    "duties": {"handle", "query"},
    "oplog": {"apply"},
    "master": {
        "query", "summarise", "queries", "calls", "file_count", "directory_count", "chunk_count",
        "safe_mode", "is_whole", "is_behind", "is_registered", "cell",
    },
    "shadow": {"handle", "query"},
}  # fmt: skip
"""What each shell may use of the brain. Only `duties` hands over events, since it logs what they
lead to, and `shadow`, which nothing may lead to but an answer; only `oplog` folds the log."""
NAMES = {"brain", "_brain"}
TAKERS = {"Duties", "Shadow", "replay", "fold", "load_image", "pack_image", "checkpoint"}
"""What the whole brain may be given to: another shell, or the brain's own code for checkpoints."""


def is_brain(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return isinstance(node, ast.Name | ast.Attribute) and name in NAMES


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def is_made(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and called(node) == "Metadata"


def is_misnamed(node: ast.AST) -> bool:
    if not isinstance(node, ast.arg) or node.arg in NAMES or node.annotation is None:
        return False
    return "Metadata" in ast.unparse(node.annotation)


def ways_round(source: str, doors: set[str]) -> Iterator[str]:
    """Give every use of the brain that is none of its doors."""
    tree = ast.parse(source)
    fine: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_brain(node.value):
            if node.attr in doors and isinstance(node.ctx, ast.Load):
                fine.add(id(node.value))
        elif isinstance(node, ast.Call) and called(node) in TAKERS:
            fine.update(id(argument) for argument in node.args)
        elif isinstance(node, ast.Assign) and (is_made(node.value) or is_brain(node.value)):
            # Under another name it would not be seen here.
            if all(is_brain(target) for target in node.targets):
                fine.update(map(id, [node.value, *node.targets]))
        elif is_misnamed(node):
            yield f"{node.lineno}: a brain called {ast.unparse(node)}"  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if (is_brain(node) or is_made(node)) and id(node) not in fine:
            yield f"{node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]


def holders() -> list[Path]:
    return [
        path
        for path in sorted((ROOT / "dfs").rglob("*.py"))
        if INSIDE not in path.parents
        and any(
            isinstance(node, ast.ImportFrom)
            and any(alias.name == "Metadata" for alias in node.names)
            for node in ast.walk(ast.parse(path.read_text()))
        )
    ]


def test_the_shells_of_the_dfs_use_nothing_of_the_brain_but_its_doors() -> None:
    """`forgive` once was called past the door: no simulated history ever came to it."""
    wrong = [
        f"{path.relative_to(ROOT)}:{way}"
        for path in holders()
        for way in ways_round(path.read_text(), DOORS.get(path.stem, set()))
    ]

    assert {path.stem for path in holders()} == set(DOORS)
    assert wrong == []


@pytest.mark.parametrize(
    "way",
    [
        "self._brain.membership.forgive(3.0)",
        "self._brain.tables.started_at_s = 1.0",
        "self._brain.is_whole = True",
        "del brain.is_whole",
        "nodes = brain.space.nodes",
        "metadata = self._brain",
        "metadata = Metadata(settings, chance)",
        "self._brains = [brain]",
        "setattr(self._brain, 'space', None)",
        "lambda: brain",
        "brain.apply(record)",
        "def look(metadata: Metadata) -> None: pass",
    ],
)
def test_a_way_round_is_seen(way: str) -> None:
    assert list(ways_round(way, DOORS["master"]))


# --- what comes out of a brain

CARRIED_OUT = {"command", "order", "message"}
"""What shells call what a brain, a master or an attempt tells them."""
ONLY_SOME = {
    "mapreduce/local/repeat.py": "shows what an attempt says, and nothing else of it",
    "mapreduce/dataflow/kernel.py": "an order of keys is no order to anybody",
    "mapreduce/tally.py": "counts what attempts did; most commands change nothing of that",
    # Commands are a base class there, which no type checker sees the end of: the last line raises.
    "dfs/chunks/commands.py": "raise AssertionError",
    "cluster/journal/group_member.py": "raise AssertionError",
}


def test_a_shell_that_forgets_a_command_does_not_pass_the_type_checker() -> None:
    """A `match` that carries out ends in `assert_never`: a new command is missed nowhere."""
    wrong = []
    for name, tree in product():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Match) or ast.unparse(node.subject) not in CARRIED_OUT:
                continue
            last = node.cases[-1].body[-1]
            is_question = isinstance(last, ast.Return) and last.value is not None
            if (
                "assert_never(" not in ast.unparse(last)
                and not is_question
                and name not in ONLY_SOME
            ):
                wrong.append(f"{name}:{node.lineno}")

    assert wrong == []


def product() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the product, by its name."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())
