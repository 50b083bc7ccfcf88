"""What `-env` names, and what its key depends on."""

from __future__ import annotations

import os
import venv
from pathlib import Path

import pytest

from mrstream.mapreduce.environment.source import Kind, source_of
from mrstream.mapreduce.job.environment import BadEnvironment
from tests.support.wheels import make_wheel, requirements


def key(path: Path) -> str:
    return source_of(str(path)).key


def test_the_key_of_requirements_is_their_text_wherever_it_lies(tmp_path: Path) -> None:
    for place in ("a", "b", "c"):
        (tmp_path / place).mkdir()
    one, same, other = (tmp_path / place / "requirements.txt" for place in "abc")
    one.write_text("numpy==2.1\n")
    same.write_text("numpy==2.1\n")
    other.write_text("numpy==2.2\n")

    assert key(one) == key(same) != key(other)
    assert source_of(str(one)).kind is Kind.REQUIREMENTS


def test_the_key_is_for_one_python_and_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("numpy\n")
    before = key(path)

    monkeypatch.setattr("platform.machine", lambda: "riscv64")

    assert key(path) != before


def test_files_that_requirements_include_count_and_may_include_each_other(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-r more.txt\n--constraint=c.txt # why\n")
    (tmp_path / "more.txt").write_text("-r requirements.txt\nnumpy\n")
    (tmp_path / "c.txt").write_text("numpy<3\n")
    before = key(tmp_path / "requirements.txt")

    (tmp_path / "c.txt").write_text("numpy<2\n")

    assert key(tmp_path / "requirements.txt") != before


def test_local_packages_that_requirements_name_count_by_their_content(tmp_path: Path) -> None:
    path = requirements(tmp_path, "hello", "./mine")
    make_wheel(tmp_path / "wheels", "hello")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text("[project]\n")
    keys = [key(path)]
    make_wheel(tmp_path / "wheels", "hello", said="good evening")
    keys.append(key(path))
    (tmp_path / "mine" / "code.py").write_text("x = 1\n")
    keys.append(key(path))

    assert len(set(keys)) == 3


def test_of_a_project_text_and_lock_count_and_its_files_if_it_is_a_package(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "p"\n')
    (tmp_path / "code.py").write_text("x = 1\n")
    alone = key(project)
    (tmp_path / "code.py").write_text("x = 2\n")
    assert key(project) == alone
    (tmp_path / "uv.lock").write_text("version = 1\n")
    assert key(project) != alone

    project.write_text('[project]\nname = "p"\n[build-system]\nrequires = []\n')
    before = key(project)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_text("x")
    assert key(project) == before
    (tmp_path / "code.py").write_text("x = 3\n")
    assert key(project) != before


def test_a_virtual_environment_is_known_by_its_files_but_not_by_where_it_lies(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        venv.create(tmp_path / name, with_pip=False, symlinks=True)
    (tmp_path / "two" / "pyvenv.cfg").write_bytes((tmp_path / "one" / "pyvenv.cfg").read_bytes())
    assert source_of(str(tmp_path / "one")).kind is Kind.DIRECTORY
    assert key(tmp_path / "one") == key(tmp_path / "two")

    packages = next((tmp_path / "two" / "lib").glob("python*")) / "site-packages"
    (packages / "more.py").write_text("x = 1\n")

    assert key(tmp_path / "one") != key(tmp_path / "two")


def test_what_is_no_environment_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    with pytest.raises(BadEnvironment, match=r"no pyvenv\.cfg; a conda environment travels as"):
        source_of(str(tmp_path / "p"))
    (tmp_path / "p" / "pyproject.toml").write_text("")
    with pytest.raises(BadEnvironment, match=r"for the project, name .*/p/pyproject\.toml"):
        source_of(str(tmp_path / "p"))
    (tmp_path / "x.bin").write_bytes(os.urandom(64) + b"\0")
    with pytest.raises(BadEnvironment, match=r"x\.bin is no list of requirements"):
        source_of(str(tmp_path / "x.bin"))
    (tmp_path / "p" / "pyproject.toml").write_text("[")
    with pytest.raises(BadEnvironment, match="is no TOML"):
        source_of(str(tmp_path / "p" / "pyproject.toml"))
