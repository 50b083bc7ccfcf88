"""The direction of imports and the purity of the brains, read off the syntax trees."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import BELOW, ROOT

BRAINS = (
    "cluster/consensus",
    "dfs/metadata",
    "lock/cell",
    "mapreduce/flow/brain",
    "mapreduce/p4/brain",
    "mapreduce/scheduler",
    "saw/tables",
)
DUTIES = ("dfs/duties.py", "lock/duties.py", "mapreduce/master/duties.py")
# What a brain may not touch: time, chance, files, sockets, processes, the log, the environment.
IMPURE = {
    "asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Give each imported module's full name, and whether only the type checker sees it.

    The class `Random` alone is no chance: a brain may be handed a seeded generator.
    """
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.unparse(test.test)
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            assert node.module is not None
            if node.module == "random" and [alias.name for alias in node.names] == ["Random"]:
                continue
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if is_ours(full) else node.module), id(node) in typing_only


def is_ours(name: str) -> bool:
    """Is this the full name of a module or package of ours?"""
    head, _, rest = name.partition(".")
    place = ROOT / rest.replace(".", "/")
    return (
        head == "mrstream" and bool(rest) and (place.is_dir() or place.with_suffix(".py").exists())
    )


def ours(path: Path) -> list[str]:
    """What a module imports of ours, as places in the tree: `dfs.client.reader`."""
    return [name.removeprefix("mrstream.") for name, _ in imported(path) if is_ours(name)]


@pytest.mark.parametrize("package", sorted(BELOW))
def test_imports_point_down_only(package: str) -> None:
    """A cli.py is a root: it may import anything, and nothing imports it but another root."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        if path.name != "cli.py"
        for name in ours(path)
        if name.split(".")[0] not in BELOW[package] or name.split(".")[-1] == "cli"
    ]

    assert modules(package)
    assert wrong == []


def test_everything_of_ours_is_imported_below_the_one_name() -> None:
    """In a checkout `import dfs` would work too, and make a second module of the same file."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder in [*BELOW, "tests"]
        for path in modules(folder)
        if "cases" not in path.parts
        for name, _ in imported(path)
        if name.split(".")[0] in BELOW
    ]

    assert wrong == []


def test_only_the_source_of_pictures_looks_at_the_dfs_and_at_streaming() -> None:
    """`mapreduce` alone knows both; above it, everything else is told in rows and words."""
    looking = {
        str(path.relative_to(ROOT))
        for package in ("view", "tui")
        for path in modules(package)
        for name in ours(path)
        if name.split(".")[0] in {"dfs", "streaming"}
    }

    assert looking == {"view/preview.py", "view/source.py"}


def test_what_all_media_share_knows_none_of_them() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("view")
        for name, _ in imported(path)
        if name.split(".")[0] in {"textual", "rich"}
    ]

    assert wrong == []


def test_only_the_web_knows_its_libraries() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for package in BELOW
        if package != "web"
        for path in modules(package)
        for name, _ in imported(path)
        if name.split(".")[0] in {"aiohttp", "awscrt", "markupsafe", "prometheus_client"}
    ]

    assert wrong == []


def test_a_door_to_the_files_knows_of_no_jobs() -> None:
    """Only pages and figures look at jobs."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder in ("web/http", "web/webhdfs")
        for path in modules(folder)
        for name in ours(path)
        if name.split(".")[0] in {"mapreduce", "streaming", "view"}
    ]

    assert wrong == []


@pytest.mark.parametrize("folder", BRAINS)
def test_a_brain_does_no_io_and_reads_no_clock(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        for name, typing_only in imported(path)
        if name.split(".")[0] in IMPURE and not typing_only
    ]
    opened = [
        f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.id}()"
        for path in modules(folder)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print", "input", "exec", "eval", "Random"}
    ]

    assert modules(folder)
    assert wrong + opened == []


@pytest.mark.parametrize("path", DUTIES)
def test_the_order_of_duties_does_no_io_and_reads_no_clock(path: str) -> None:
    """It runs in the simulators as it does around the brain."""
    wrong = [name for name, _ in imported(ROOT / path) if name.split(".")[0] in IMPURE]

    assert wrong == []


def test_the_agent_is_whole_and_needs_nothing_that_a_bare_host_lacks() -> None:
    """Its modules are sent in their order, and each may use only those before it."""
    from mrstream.cluster import agent

    before: set[str] = set()
    wrong = []
    for name in agent.MODULES:
        path = ROOT / "cluster" / "agent" / f"{name}.py"
        for module, _ in imported(path):
            if module.split(".")[0] in sys.stdlib_module_names:
                continue
            if module not in before:
                wrong.append(f"{path.name} imports {module}")
        before.add(f"{agent.__name__}.{name}")

    assert wrong == []
    assert {path.stem for path in modules("cluster/agent")} == {"__init__", *agent.MODULES}


def test_only_one_module_makes_markup_from_words() -> None:
    """What escapes by default cannot be forgotten; `Markup(` is where it could be."""
    wrong = [
        str(path.relative_to(ROOT))
        for path in modules("web")
        if "Markup(" in path.read_text() or "|safe" in path.read_text()
    ]

    assert wrong == ["web/pages/markup.py"]
