"""The C kernel under the address and undefined-behaviour sanitizers, fed by its property tests."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
SOURCES = sorted(str(path) for path in (ROOT / "mapreduce" / "dataflow").glob("_kernel*.c"))
FLAGS = [
    *("-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
    "-DPy_LIMITED_API=0x030B0000",
]
RUNNER = """
import importlib.util, sys
from mrstream.mapreduce import dataflow
import pytest
from hypothesis import settings

spec = importlib.util.spec_from_file_location("mrstream.mapreduce.dataflow._kernel", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["mrstream.mapreduce.dataflow._kernel"] = dataflow._kernel = module
settings.register_profile("sanitized", deadline=None, max_examples=20)
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=sanitized",
                      "--no-skips", *sys.argv[2:]]))
"""


def run_sanitized(library: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests in an interpreter whose kernel is the sanitized library."""
    runtimes = [
        subprocess.run(
            ["cc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = dict(
        os.environ,
        LD_PRELOAD=":".join(runtimes),
        # Python itself keeps memory until it ends; only wrong accesses are of interest here.
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",
        MRSTREAM_KERNEL="native",
    )
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        [sys.executable, "-c", RUNNER, str(library), *tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_no_property_makes_the_kernel_touch_what_it_does_not_own(tmp_path: Path) -> None:
    """A mapper's output is untrusted: no bytes of it may break the process that sorts them."""
    library = tmp_path / "_kernel.abi3.so"
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run(["cc", *FLAGS, include, *SOURCES, "-o", str(library)], check=True)
    here = Path(__file__).parent
    tests = [str(here / f"test_kernel_{name}.py") for name in ("sort", "merge", "lines")]
    tests.append(str(here / "test_csv_rows.py"))

    ran = run_sanitized(library, *tests)

    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-6000:]
    assert " passed" in ran.stdout
