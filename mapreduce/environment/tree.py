"""The directory of an environment: what its compiled parts need, how it travels, how it settles.

An environment that brings no Python of its own is a virtual environment whose `bin/python` leads to
the Python of the host: so these links stay behind when it is packed, and are made anew where it
arrives. Scripts in `bin` find their Python beside themselves, wherever that is. Takes directories;
never decides which.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator

from mrstream.mapreduce.job.environment import BadEnvironment, Environment, Platform

_PYTHON_LINK = re.compile(r"bin/python[0-9.]*")
_ACTIVATION = re.compile(r"bin/([Aa]ctivate|deactivate).*")
_SHEBANG = re.compile(rb"#!\s*(/\S*/bin)/python[0-9.]*[ \t]*\n")
# How installers write an interpreter whose path is too long for the kernel, or has blanks.
_LONG_SHEBANG = re.compile(
    rb"#!/bin/sh\n'''exec' \"?(/[^\n]*?/bin)/python[0-9.]*\"? \"\$0\" .*\n' '''\n"
)
_SYSTEM_BIN = (b"/usr/bin", b"/bin", b"/usr/local/bin")
_BESIDE = (
    b"#!/bin/sh\n"
    b"'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n"
    b"' '''\n"
)  # fmt: skip
_SCRIPT_BYTES_MAX = 4 << 20
_ELF = b"\x7fELF"
_MACHINES = {
    3: "i686", 21: "ppc64", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64",
    243: "riscv64", 258: "loongarch64",
}  # fmt: skip
_GLIBC_SYMBOLS = re.compile(rb"\0GLIBC_2\.(\d{1,3})(?:\.\d+)?(?=\0)")
_COMPRESSION = 1
_CONDA_UNPACK = "bin/conda-unpack"
_SETTLE_S_MAX = 600.0


def is_left_out(relative: str, path: str) -> bool:
    """Whether a file of an environment does not travel: what is made anew where it arrives."""
    if "__pycache__/" in relative or _ACTIVATION.fullmatch(relative):
        return True
    return _PYTHON_LINK.fullmatch(relative) is not None and os.path.islink(path)


def relocated(script: bytes) -> bytes:
    """Return a script of `bin` that finds its Python beside itself."""
    for pattern in (_SHEBANG, _LONG_SHEBANG):
        found = pattern.match(script)
        if found is not None and found[1] not in _SYSTEM_BIN:
            return _BESIDE + script[found.end() :]
    return script


def relocate_scripts(root: str) -> None:
    """Have all scripts of an environment find their Python beside themselves."""
    for path in _scripts(root):
        with open(path, "rb") as file:
            script = file.read()
        better = relocated(script)
        if better is not script:
            # Never written into: installers link files to those in their own caches.
            partial = f"{path}.partial"
            with open(partial, "wb") as file:
                file.write(better)
            os.chmod(partial, os.stat(path).st_mode & 0o777)
            os.replace(partial, path)


def _scripts(root: str) -> Iterator[str]:
    directory = os.path.join(root, "bin")
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        path = os.path.join(directory, name)
        if os.path.isfile(path) and not os.path.islink(path) and _is_script(path):
            yield path


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!" and os.path.getsize(path) <= _SCRIPT_BYTES_MAX


# --- what it needs


def needs_of(root: str) -> Platform:
    """Say what the environment needs of a host: its Python, machine and C library.

    The newest version of glibc whose symbols a compiled part asks for is what it needs, whatever
    the names of packages claim.
    """
    machines: dict[str, None] = {}
    newest, is_musl = -1, False
    for data in _compiled(root):
        order = "little" if data[5:6] == b"\1" else "big"
        number = int.from_bytes(data[18:20], order)  # type: ignore[arg-type]
        machines[_MACHINES.get(number, f"machine {number}")] = None
        newest = max([newest, *(int(version) for version in _GLIBC_SYMBOLS.findall(data))])
        is_musl = is_musl or b"libc.musl-" in data or b"/ld-musl-" in data
    if len(machines) > 1:
        raise BadEnvironment(f"{root} has compiled parts for {' and for '.join(sorted(machines))}")
    libc = "musl" if is_musl else f"glibc 2.{newest}" if newest >= 0 else ""
    return Platform(_python_of(root), next(iter(machines), ""), libc)


def _compiled(root: str) -> Iterator[bytes]:
    for place, _, names in os.walk(root):
        for name in names:
            path = os.path.join(place, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                if file.read(len(_ELF)) == _ELF:
                    yield _ELF + file.read()


def _python_of(root: str) -> str:
    """Return the version of Python that an environment is for, by where its packages are."""
    library = os.path.join(root, "lib")
    names = sorted(os.listdir(library)) if os.path.isdir(library) else []
    found = [name.removeprefix("python") for name in names if re.fullmatch(r"python3\.\d+", name)]
    if len(found) != 1:
        raise BadEnvironment(
            f"{root} is no Python environment: it has {len(found)} directories lib/python3.*, and "
            "one is needed"
        )
    return found[0]


def brings_python(root: str) -> bool:
    """Whether an environment has a Python of its own in it."""
    path = os.path.join(root, "bin", "python")
    real = os.path.realpath(path)
    return os.path.isfile(path) and real.startswith(os.path.realpath(root) + os.sep)


# --- on its way


def pack(root: str, target: str) -> None:
    """Pack an environment so that it can be unpacked anywhere."""
    with tarfile.open(target, "w:gz", compresslevel=_COMPRESSION) as tar:
        for place, names, files in os.walk(root):
            names.sort()
            linked = [name for name in names if os.path.islink(os.path.join(place, name))]
            for name in sorted([*files, *linked]):
                path = os.path.join(place, name)
                relative = os.path.relpath(path, root)
                if not is_left_out(relative, path):
                    _add(tar, root, path, relative)


def _add(tar: tarfile.TarFile, root: str, path: str, relative: str) -> None:
    member = tarfile.TarInfo(relative)
    if os.path.islink(path):
        target = os.readlink(path)
        inside = os.path.realpath(path).startswith(os.path.realpath(root) + os.sep)
        if os.path.isabs(target) or not inside:
            raise BadEnvironment(
                f"{path} leads out of the environment, to {target}, which hosts do not have"
            )
        member.type, member.linkname = tarfile.SYMTYPE, target
        tar.addfile(member)
        return
    if not os.path.isfile(path):
        return  # a socket or a pipe
    member.mode = os.stat(path).st_mode & 0o777
    with open(path, "rb") as file:
        if os.path.dirname(relative) == "bin" and _is_script(path):
            script = relocated(file.read())
            member.size = len(script)
            tar.addfile(member, io.BytesIO(script))
            return
        member.size = os.path.getsize(path)
        tar.addfile(member, file)


def root_of(unpacked: str) -> str:
    """Return where the environment in an unpacked archive begins: at its top, or one directory
    in."""
    names = os.listdir(unpacked)
    if len(names) == 1 and os.path.isdir(os.path.join(unpacked, names[0], "lib")):
        return os.path.join(unpacked, names[0])
    return unpacked


# --- where it arrives


def settle(root: str, environment: Environment) -> None:
    """Make an unpacked environment run from where it is; it must not move any more."""
    if environment.brings_python:
        relocate_scripts(root)
        _run_conda_unpack(root)
        return
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    os.makedirs(os.path.join(root, "bin"), exist_ok=True)
    for name in ("python", "python3", "python{}.{}".format(*sys.version_info[:2])):
        path = os.path.join(root, "bin", name)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(base, path)
    settings = _venv_settings(root)
    settings |= {"home": os.path.dirname(base), "version": "{}.{}.{}".format(*sys.version_info[:3])}
    path = os.path.join(root, "pyvenv.cfg")
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{name} = {value}\n" for name, value in settings.items())


def _venv_settings(root: str) -> dict[str, str]:
    """Return what stays true of a virtual environment wherever it is."""
    wanted = "include-system-site-packages"
    value = "false"
    path = os.path.join(root, "pyvenv.cfg")
    if os.path.isfile(path) and not os.path.islink(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, said = line.partition("=")
                if name.strip().lower() == wanted:
                    value = "true" if said.strip().lower() == "true" else "false"
    return {wanted: value}


def _run_conda_unpack(root: str) -> None:
    """Let what conda-pack put in write the new place into the files that hold the old one."""
    program = os.path.join(root, _CONDA_UNPACK)
    if not os.path.isfile(program):
        return
    try:
        ended = subprocess.run(
            [os.path.join(root, "bin", "python"), program],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_SETTLE_S_MAX, cwd=root,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadEnvironment(f"{_CONDA_UNPACK} of the environment cannot run: {error}") from None
    if ended.returncode != 0:
        said = ended.stderr.decode("utf-8", "replace").strip()[-500:]
        raise BadEnvironment(
            f"{_CONDA_UNPACK} of the environment ended with {ended.returncode}: {said}"
        )


def tree_bytes(path: str) -> int:
    """Return how much the files below a directory hold."""
    return sum(
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(path)
        for name in names
    )
