"""The wheel installs one importable name, `mrstream`, whichever way it is built.

`cluster`, `dfs`, `streaming` are names that other projects have too: were they installed at the top
level, two programs in one environment would break each other.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT

FOLDERS = PACKAGES


def build(source: Path, what: str, into: Path, compiler: str = "false") -> Path:
    """Let the build backend make a wheel or an sdist of a source tree, as pip does."""
    code = f"import sys, setuptools.build_meta as b; print(b.build_{what}(sys.argv[1]))"
    # What is built is looked at, not run fast: the C kernel is not what this is about.
    env = {**os.environ, "CC": compiler, "LDSHARED": compiler}
    ended = subprocess.run(
        [sys.executable, "-c", code, str(into)],
        cwd=source, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return into / ended.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as git has it, links and all, without what was built here."""
    place = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    names = [name for name in listed.stdout.decode().split("\0") if (ROOT / name).exists()]
    kept = [n for n in names if not n.startswith(("tests/", "docs/", "examples/"))]
    packed = place / "tree.tar"
    with tarfile.open(packed, "w") as archive:
        for name in kept:
            archive.add(ROOT / name, name, recursive=False)
    with tarfile.open(packed) as archive:
        archive.extractall(place / "tree", filter="tar")
    return place / "tree"


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(checkout, "wheel", tmp_path_factory.mktemp("wheel"))


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_the_wheel_has_one_top_level_name_and_everything_below_it(wheel: Path) -> None:
    names = names_in(wheel)
    wanted = {
        f"mrstream/{path.relative_to(ROOT)}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".tsv", ".txt", ".tcss", ".typed"}
    }

    assert {name.split("/")[0] for name in names} == {"mrstream", f"{wheel.stem.split('-')[0]}-"
        f"{wheel.stem.split('-')[1]}.dist-info"}  # fmt: skip
    assert wanted - names == set()


def test_one_wheel_is_good_for_every_python_from_3_11_on(checkout: Path, tmp_path: Path) -> None:
    """The C kernel keeps to the stable ABI, and the wheel says so: else each Python needs its own.
    What the compiler makes is of no matter here: empty files will do."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done\n'
    )
    compiler.chmod(0o755)

    made = build(checkout, "wheel", tmp_path / "made", str(compiler))

    assert f"-cp311-abi3-linux_{platform.machine()}.whl" in made.name
    compiled = [name for name in names_in(made) if name.endswith(".so")]
    assert compiled == ["mrstream/mapreduce/dataflow/_kernel.abi3.so"]


def test_an_sdist_builds_the_same_wheel(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    """The links of the checkout are files in an sdist: what is made of them is the same."""
    sdist = build(checkout, "sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    (tmp_path / "again").mkdir()

    again = build(source, "wheel", tmp_path / "again")

    assert names_in(again) == names_in(wheel)


def test_other_projects_of_the_same_names_do_no_harm(wheel: Path, tmp_path: Path) -> None:
    """As with `mosaicml-streaming` or `cluster` of the package index in one environment."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("raise ImportError('another project')")
    code = "import sys; from mrstream.streaming.cli import main; sys.exit(main(['--version']))"

    ended = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout[:9]) == (0, "mrstream "), ended.stderr


def test_the_links_and_the_list_of_packages_are_those_of_the_tree() -> None:
    links = {
        path.name: os.readlink(path) for path in (ROOT / "mrstream").iterdir() if path.is_symlink()
    }
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = [
        ".".join(["mrstream", *path.parent.relative_to(ROOT).parts])
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    ]

    assert links == {folder: f"../{folder}" for folder in FOLDERS}
    assert sorted(listed) == sorted(["mrstream", *there])


def test_nothing_of_ours_is_loaded_by_another_name() -> None:
    """Also by no string: the checkout is on the path of the tests, where `dfs` can be imported."""
    code = (
        "import importlib, pkgutil, sys, mrstream\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "for found in pkgutil.walk_packages(mrstream.__path__, 'mrstream.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        f"print(*sorted(set({FOLDERS!r}) & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )

    assert ran.stdout.split() == []
