"""Environments on the submitter's disk: built once, by uv or pip; never half; evicted by size."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from mrstream.mapreduce.environment import build, store
from mrstream.mapreduce.environment.source import source_of
from mrstream.mapreduce.job.environment import FUNCTIONS_LINK, BadEnvironment, Environment
from tests.support.local_jobs import TREE
from tests.support.wheels import make_wheel, requirements


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store, "_held", {})
    return tmp_path / "home"


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    make_wheel(tmp_path / "wheels", "hello")
    return requirements(tmp_path, "hello==1.0")


def here(path: Path, said: list[str]) -> Environment:
    return store.here(source_of(str(path)), said.append)


def run(environment: Environment, *words: str) -> str:
    program = os.path.join(environment.path, "bin", words[0])
    return subprocess.run(
        [program, *words[1:]], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_requirements_are_built_once_offline_from_a_directory_of_wheels(
    wanted: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool == "pip":
        monkeypatch.setattr(build, "find_uv", lambda: None)
    said: list[str] = []

    made = here(wanted, said)
    assert f"with {tool} for Python" in said[0]
    assert run(made, "python", "-c", "import hello; print(hello.SAID)") == "hello"
    assert run(made, "say-hello") == f"hello {made.path}"
    assert made.machine == made.libc == ""

    said.clear()
    assert here(wanted, said) == made
    assert said == []


def test_the_environment_has_nothing_of_the_python_that_built_it(wanted: Path) -> None:
    made = here(wanted, [])

    assert run(made, "python", "-c", "import sys; print('msgspec' in sys.modules)") == "False"
    with pytest.raises(subprocess.CalledProcessError):
        run(made, "python", "-c", "import msgspec")


def test_a_failed_build_says_the_tools_last_words_and_leaves_nothing(
    tmp_path: Path, home: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    wanted = requirements(tmp_path, "nothing-like-that==7")

    with pytest.raises(
        BadEnvironment, match=r"uv could not build the environment:\n(.|\n)*nothing"
    ):
        here(wanted, [])

    assert [path.suffix for path in (home / "environments").iterdir()] == [".lock"]


def test_two_builds_at_once_are_one(wanted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two processes asks; threads with lock descriptors of their own stand for them."""
    fills: list[str] = []
    began = threading.Event()
    really = build.fill

    def fill(*words: object) -> None:
        fills.append("built")
        began.wait(60)
        really(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "fill", fill)
    said: list[list[str]] = [[], []]
    code = (
        "import sys; from mrstream.mapreduce.environment import store, source\n"
        "print(store.here(source.source_of(sys.argv[1]), lambda text: print(text)).key)"
    )
    first = threading.Thread(target=here, args=(wanted, said[0]))
    first.start()
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(wanted)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )  # fmt: skip
    assert other.stdout is not None
    assert "another process is building this environment" in other.stdout.readline()
    began.set()
    first.join(60)

    assert other.communicate(timeout=60)[0].splitlines() == [source_of(str(wanted)).key]
    assert fills == ["built"]


def test_a_build_that_was_killed_is_done_again_from_the_start(
    wanted: Path, home: Path, tmp_path: Path
) -> None:
    """kill -9 in the middle: what is there has no mark, so nobody takes it for an environment."""
    code = (
        "import os, sys; from mrstream.mapreduce.environment import store, source, build\n"
        "really = build._Tool.install\n"
        "def install(*words): really(*words); os.kill(os.getpid(), 9)\n"
        "build._Tool.install = install\n"
        "store.here(source.source_of(sys.argv[1]), lambda text: None)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(wanted)], env={**os.environ, "PYTHONPATH": str(TREE)}
    )
    key = source_of(str(wanted)).key
    assert ended.returncode == -signal.SIGKILL
    left = home / "environments" / key
    assert left.is_dir() and not (left / store.MARK).exists()
    (left / "rubbish").write_text("")

    made = here(wanted, [])

    assert not (left / "rubbish").exists()
    assert run(made, "say-hello") == f"hello {made.path}"


def test_what_was_not_used_for_longest_goes_but_not_what_is_in_use(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEPT_BYTES_MAX", 1)
    made, said = [], list[str]()
    for name in ("one", "two", "three"):
        make_wheel(tmp_path / name / "wheels", "hello", said=name)
        made.append(here(requirements(tmp_path / name, "hello"), said))
        if name == "one":  # this process lets go of it
            os.close(store._held.pop(made[0].key))

    line = f"the environment {made[0].key[:12]} is deleted: {home}/environments may hold 1 B"
    assert [each for each in said if "is deleted" in each] == [line]
    assert [Path(each.path).exists() for each in made] == [False, True, True]


def test_a_users_virtual_environment_is_used_where_it_is(tmp_path: Path, home: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "mine"], check=True)

    used = here(tmp_path / "mine", [])

    assert used.path == str(tmp_path / "mine")
    assert not (home / "environments").exists()


def test_a_project_is_its_dependencies_and_itself_if_it_is_a_package(tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "hello")
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\nname = "mine"\nversion = "1"\ndependencies = ["hello"]\n'
        f'[tool.uv]\nno-index = true\nfind-links = ["{tmp_path}/wheels"]\n'
    )

    made = here(project, [])

    assert run(made, "python", "-c", "import hello; print(hello.SAID)") == "hello"


def test_an_archive_that_reaches_out_of_its_directory_is_refused(
    tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("../../evil.txt")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))

    with pytest.raises(BadEnvironment, match="would be written outside the archive's directory"):
        here(path, [])

    assert not list(home.rglob("evil.txt"))


def test_a_virtual_environment_packed_with_its_python_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "mine"], check=True)
    path = tmp_path / "mine.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tmp_path / "mine", "mine")

    with pytest.raises(BadEnvironment) as refused:
        here(path, [])

    said = str(refused.value)
    assert said.startswith(f"-env {path}: link 'mine/bin/python")
    assert "leads out of the archive, to '/" in said  # the culprit, not a link to it
    assert "leave bin/python* out" in said and "\n" not in said


def test_an_archive_that_is_no_environment_is_named_as_it_was_given(
    tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "some.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(__file__, "some.py")

    with pytest.raises(BadEnvironment) as refused:
        here(path, [])

    assert str(refused.value).startswith(f"-env {path} is no Python environment: it has 0")
    assert str(home) not in str(refused.value)


def test_functions_and_environment_must_be_of_one_python() -> None:
    import mrstream.api.functions

    assert mrstream.api.functions.LINK == FUNCTIONS_LINK


def test_a_lock_beside_a_project_says_which_versions(tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        make_wheel(tmp_path / "wheels", "hello", version, said=version)
    project = tmp_path / "pyproject.toml"
    text = (
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["hello{}"]\n[tool.uv]\nno-index = true\nfind-links = ["wheels"]\n'
    )
    project.write_text(text.format("<2"))
    uv = build.find_uv()
    assert uv is not None
    subprocess.run([uv, "lock", "--quiet", "--python", sys.executable], cwd=tmp_path, check=True)
    project.write_text(text.format(""))  # what the lock pins still fits

    made = here(project, [])

    assert run(made, "python", "-c", "import hello; print(hello.SAID)") == "1.0"


def test_a_lock_needs_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    (tmp_path / "uv.lock").write_text("version = 1\n")
    monkeypatch.setattr(build, "find_uv", lambda: None)

    with pytest.raises(BadEnvironment, match=r"uv\.lock needs uv: `pip install uv`"):
        here(tmp_path / "pyproject.toml", [])


def test_the_packages_of_a_pex_are_an_environment(tmp_path: Path) -> None:
    """As pex lays them out: every wheel in a directory of its own, `.deps/NAME.whl`."""
    path = tmp_path / "mine.pex"
    with zipfile.ZipFile(path, "w") as pex:
        pex.writestr(".deps/hello-1.0-py3-none-any.whl/hello.py", "SAID = 'hello'\n")
        pex.writestr("own.py", "import hello\nSAID = hello.SAID + ' from a pex'\n")
        pex.writestr("PEX-INFO", "{}")
    path.write_bytes(b"#!/usr/bin/env python3\n" + path.read_bytes())

    made = here(path, [])

    assert run(made, "python", "-c", "import own; print(own.SAID)") == "hello from a pex"


def test_a_pex_for_another_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.pex"
    with zipfile.ZipFile(path, "w") as pex:
        pex.writestr(".deps/x-1.0-cp38-cp38-manylinux2014_x86_64.whl/x.py", "")

    with pytest.raises(BadEnvironment, match=r"another Python than 3.*x-1\.0-cp38"):
        here(path, [])


def test_a_virtual_environment_in_an_archive_uses_the_python_of_the_host(tmp_path: Path) -> None:
    """Packed with its own directory around it, and without the links to its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "mine"], check=True)
    packages = next((tmp_path / "mine" / "lib").glob("python*")) / "site-packages"
    (packages / "hello.py").write_text("SAID = 'hello'\n")
    with tarfile.open(tmp_path / "mine.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "mine", "mine", filter=lambda m: None if "bin/python" in m.name else m)

    made = here(tmp_path / "mine.tar.gz", [])

    assert not made.brings_python
    assert run(made, "python", "-c", "import hello, sys; print(hello.SAID, sys.prefix)") == (
        f"hello {made.path}"
    )
