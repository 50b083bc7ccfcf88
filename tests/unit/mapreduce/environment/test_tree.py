"""The directory of an environment: what its compiled parts need, how it is packed and settles."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from mrstream.mapreduce.environment import tree
from mrstream.mapreduce.job.environment import BadEnvironment, Environment, Platform
from mrstream.streaming.task.shipping import unpack

VERSION = "{}.{}".format(*sys.version_info[:2])
HERE = Environment("venv", "key", python=VERSION)


def elf(machine: int, *strings: bytes) -> bytes:
    """The beginning of an ELF file, and strings somewhere in it."""
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HH", 3, machine)
    return head + bytes(44) + b"\0".join([b"", *strings, b""])


def environment(root: Path, **files: bytes) -> Path:
    packages = root / "lib" / f"python{VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    for name, data in files.items():
        (packages / name).write_bytes(data)
    return root


def test_it_needs_the_newest_symbols_that_a_compiled_part_asks_for(tmp_path: Path) -> None:
    root = environment(
        tmp_path,
        a=elf(62, b"GLIBC_2.2.5", b"GLIBC_2.17"),
        b=elf(62, b"GLIBC_2.9"),
        c=b"text about GLIBC_2.99\0",
    )

    assert tree.needs_of(str(root)) == Platform(VERSION, "x86_64", "glibc 2.17")


def test_musl_is_a_library_of_its_own_and_pure_python_needs_none(tmp_path: Path) -> None:
    musl = environment(tmp_path / "m", a=elf(183, b"libc.musl-aarch64.so.1"))
    pure = environment(tmp_path / "p", a=b"x = 1\n")

    assert tree.needs_of(str(musl)) == Platform(VERSION, "aarch64", "musl")
    assert tree.needs_of(str(pure)) == Platform(VERSION, "", "")


def test_parts_for_two_machines_are_refused_and_so_is_what_is_no_environment(
    tmp_path: Path,
) -> None:
    root = environment(tmp_path / "two", a=elf(62), b=elf(183))
    with pytest.raises(BadEnvironment, match="compiled parts for aarch64 and for x86_64"):
        tree.needs_of(str(root))
    (tmp_path / "none").mkdir()
    with pytest.raises(BadEnvironment, match=r"no Python environment: it has 0 directories"):
        tree.needs_of(str(tmp_path / "none"))


@pytest.mark.parametrize(
    "head",
    [
        b"#!/home/me/venv/bin/python\n",
        b"#!/home/me/venv/bin/python3.11\n",
        b"#!/bin/sh\n'''exec' /home/me/a long one/bin/python \"$0\" \"$@\"\n' '''\n",
        b"#!/bin/sh\n'''exec' \"/home/me/a long one/bin/python3\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_a_script_runs_by_the_python_beside_it_wherever_it_is(tmp_path: Path, head: bytes) -> None:
    place = tmp_path / "a place" / "bin"
    place.mkdir(parents=True)
    (place / "python").symlink_to(sys.executable)
    script = place / "say"
    script.write_bytes(tree.relocated(head + b"import sys\nprint(sys.argv[1:], sys.executable)\n"))
    script.chmod(0o755)

    ran = subprocess.run([script, "a b", "$c"], capture_output=True, text=True, check=True)

    assert ran.stdout == f"['a b', '$c'] {place / 'python'}\n"


@pytest.mark.parametrize(
    "script",
    [b"#!/usr/bin/env python3\n", b"#!/usr/bin/python3\n", b"#!/bin/sh\necho\n", b"\x7fELF", b""],
)
def test_other_scripts_stay_as_they_are(script: bytes) -> None:
    assert tree.relocated(script) is script


def test_a_virtual_environment_is_packed_without_its_python_and_settles_elsewhere(
    tmp_path: Path,
) -> None:
    made = tmp_path / "made"
    venv.create(made, with_pip=False, symlinks=True)
    packages = made / "lib" / f"python{VERSION}" / "site-packages"
    (packages / "hello.py").write_text("SAID = 'hello'\n")
    script = made / "bin" / "say"
    script.write_text(f"#!{made}/bin/python\nimport hello, sys\nprint(hello.SAID, sys.prefix)\n")
    script.chmod(0o755)

    tree.pack(str(made), str(tmp_path / "packed.tar.gz"))
    with tarfile.open(tmp_path / "packed.tar.gz") as tar:
        names = tar.getnames()
    assert "bin/say" in names
    assert not [name for name in names if name.startswith(("bin/python", "bin/activate"))]
    moved = tmp_path / "moved"
    unpack(str(tmp_path / "packed.tar.gz"), str(moved))
    tree.settle(str(moved), HERE)
    os.rename(made, tmp_path / "gone")

    ran = subprocess.run([moved / "bin" / "say"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"hello {moved}\n"


def test_a_link_out_of_the_environment_is_refused_when_it_is_packed(tmp_path: Path) -> None:
    root = environment(tmp_path / "e")
    (root / "lib" / "data").symlink_to("/etc")

    with pytest.raises(BadEnvironment, match=r"lib/data leads out of the environment, to /etc"):
        tree.pack(str(root), str(tmp_path / "packed.tar.gz"))


def test_what_conda_pack_put_in_is_run_once_in_the_final_place(tmp_path: Path) -> None:
    root = environment(tmp_path / "e")
    (root / "bin").mkdir()
    (root / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (root / "bin" / "python").chmod(0o755)
    (root / "bin" / "conda-unpack").write_text("open('settled', 'x').close()\n")
    packed = Environment("c.tar.gz", "key", python=VERSION, brings_python=True)

    assert tree.brings_python(str(root))
    tree.settle(str(root), packed)
    assert (root / "settled").exists()

    with pytest.raises(BadEnvironment, match=r"conda-unpack of the environment ended with 1: .*"):
        tree.settle(str(root), packed)


def test_a_hostile_version_or_layout_leaves_nothing_outside(tmp_path: Path) -> None:
    root = environment(tmp_path / "in" / "e")
    hostile = Environment("x", "k", python="../../../../out")
    (root / "bin").mkdir()
    (root / "pyvenv.cfg").symlink_to(tmp_path / "victim")

    tree.settle(str(root), hostile)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    assert (root / "pyvenv.cfg").is_file() and not (root / "pyvenv.cfg").is_symlink()
