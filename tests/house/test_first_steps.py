"""`make demo` on a machine that lacks something says what to install; it installs no developers'
tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make where there is no apt-get: as for anybody who is not root."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "id", "make", "echo", "touch"):
        (tools / name).symlink_to(shutil.which(name) or name)
    return subprocess.run(
        ["make", "-C", str(ROOT), f"VENV={tmp_path / 'venv'}", *words],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_python_without_venv_is_named_with_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(
        f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    bare.chmod(0o755)

    ran = make(tmp_path, f"PYTHON={bare}", "demo")

    assert ran.returncode != 0
    assert f"{bare} lacks the module venv or ensurepip; install it first" in ran.stdout
    assert "sudo apt-get install python3-venv" in ran.stdout


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\ncase "$*" in -V) echo Python 3.9.2;; *) exit 1;; esac\n')
    old.chmod(0o755)

    ran = make(tmp_path, f"PYTHON={old}", "demo")

    assert ran.returncode != 0
    assert "needs Python 3.11 or newer, and this is Python 3.9.2" in ran.stdout


def test_the_demonstration_needs_no_tools_of_developers(tmp_path: Path) -> None:
    planned = make(tmp_path, f"PYTHON={sys.executable}", "-n", "demo").stdout

    assert "pip install --quiet --editable .\n" in planned
    assert "--group dev" not in planned
