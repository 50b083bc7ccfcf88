"""The gate measures what users get: the C kernel, not its slower twin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mrstream.mapreduce.dataflow import kernel


def test_the_c_kernel_was_built_here() -> None:
    assert kernel.IS_NATIVE, "no C kernel: install a C compiler, then `make setup`"
    assert kernel._native.__name__ == "mrstream.mapreduce.dataflow._kernel"


def test_it_is_found_where_the_checkout_is_not_on_the_path(tmp_path: Path) -> None:
    """As for a user: in tests the folders of the checkout can be imported by other names too."""
    code = "from mrstream.mapreduce.dataflow import kernel; print(kernel.IS_NATIVE)"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert (ran.stdout, ran.stderr) == ("True\n", "")
