"""The gate measures what users get: the C kernel, not its slower twin."""

from __future__ import annotations

from mrstream.mapreduce.dataflow import kernel


def test_the_c_kernel_was_built_here() -> None:
    assert kernel.IS_NATIVE, "no C kernel: install a C compiler, then `make setup`"
