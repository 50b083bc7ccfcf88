"""The running version of mrstream as a wheel, whichever way it was installed here.

Made from the files that this process runs, so that hosts get exactly what the launcher is, be it an
installed package or a checkout. The bytes depend on nothing but those files: equal versions have
equal wheels, and a host that has one by its hash needs no copy. `wheelhouse` adds the wheels of all
dependencies, those of the extras asked for included, for hosts without a network.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, util

from mrstream.cluster.config import state
from mrstream.cluster.errors import UserError

PACKAGE = "mrstream"
_EPOCH = (2020, 1, 1, 0, 0, 0)
_OF_EXTRA = re.compile(r"""(?:(.*) and )?extra == ["']([^"']+)["']""")
"""The condition of a requirement that belongs to an extra: one of its own, if any, and which."""
_SHIPPED = (".py", ".so", ".typed", ".tsv", ".txt", ".tcss", ".c", ".h")


@dataclass(frozen=True, slots=True)
class Wheel:
    name: str
    content: bytes
    digest: str
    """The start of its SHA-256; names the virtual environment that it is installed in."""


@functools.cache
def running_wheel(machine: str) -> Wheel:
    """Return the wheel of the version that runs here, for hosts of that kind (`uname -m`); for
    another kind than ours it is without compiled parts, whose pure twins then do the work."""
    distribution = _distribution()
    version = distribution.version
    files = _package_files()
    if machine != platform.machine():
        files = {name: content for name, content in files.items() if not name.endswith(".so")}
    native = any(name.endswith(".so") for name in files)
    tag = f"cp311-abi3-linux_{platform.machine()}" if native else "py3-none-any"
    info = f"mrstream-{version}.dist-info"
    # A checkout that is the current directory is found by the file that setuptools left there.
    about = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    files[f"{info}/METADATA"] = about.encode()
    files[f"{info}/entry_points.txt"] = (distribution.read_text("entry_points.txt") or "").encode()
    pure = "false" if native else "true"
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: mrstream\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    ).encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    content = _zip(files)
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Wheel(f"mrstream-{version}-{tag}.whl", content, digest)


def _distribution() -> metadata.Distribution:
    try:
        return metadata.distribution("mrstream")
    except metadata.PackageNotFoundError:
        raise UserError(
            "mrstream is not installed here, so there is nothing to install on other hosts: "
            "`pip install -e .` in its source, or use `install: none`"
        ) from None


def _package_files() -> dict[str, bytes]:
    spec = util.find_spec(PACKAGE)
    assert spec is not None and spec.submodule_search_locations, "this module is one of them"
    root = next(iter(spec.submodule_search_locations))
    files: dict[str, bytes] = {}
    # In a checkout the folders below the package are links to those at the top of the tree.
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(_SHIPPED):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    files[f"{PACKAGE}/{os.path.relpath(path, root)}"] = file.read()
    return files


def _record(files: dict[str, bytes], own_name: str) -> bytes:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(content)}")
    return ("\n".join([*lines, f"{own_name},,"]) + "\n").encode()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 6)
    return buffer.getvalue()


def wheelhouse(python_version: str, machine: str, extras: Sequence[str]) -> dict[str, str]:
    """Return name → local path of the wheels of every dependency, for hosts with that Python
    (such as 3.11.2) and machine; fetched once and kept below the user's state directory."""
    requirements = requirements_of(_distribution().requires or [], extras)
    minor = ".".join(python_version.split(".")[:2])
    key = hashlib.sha256("\n".join([*requirements, minor, machine]).encode()).hexdigest()[:16]
    folder = os.path.join(state.home(), "wheelhouse", key)
    done = os.path.join(folder, "complete")
    if not os.path.exists(done):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _download(requirements, minor, machine, folder)
        with open(done, "w", encoding="utf-8") as file:
            file.write("\n")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".whl"))
    return {name: os.path.join(folder, name) for name in names}


def requirements_of(declared: Sequence[str], extras: Sequence[str]) -> list[str]:
    """Return what a distribution needs with these extras, without the condition that says so."""
    needed: list[str] = []
    for item in declared:
        requirement, _, condition = item.partition(";")
        found = _OF_EXTRA.fullmatch(condition.strip())
        if found is None:
            needed.append(item)
        elif found[2] in extras:
            needed.append(f"{requirement.strip()}; {found[1]}" if found[1] else requirement.strip())
    return list(dict.fromkeys(needed))


def _download(requirements: list[str], minor: str, machine: str, folder: str) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    argv += ["--dest", folder, "--only-binary", ":all:", "--python-version", minor]
    for glibc in ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34", "linux"):
        argv += ["--platform", f"{glibc}_{machine}"]
    ended = subprocess.run([*argv, *requirements], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        last = (ended.stderr or ended.stdout).strip()[-800:]
        raise UserError(f"the wheels for Python {minor} on {machine} cannot be fetched: {last}")
