"""Run all benchmarks, or those named, and print their tables: `python tests/benchmarks local`."""

from __future__ import annotations

import compileall
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))


def main(names: list[str]) -> int:
    """Print one table a benchmark."""
    from tests.benchmarks.common import HEADER
    from tests.house.tree import PACKAGES

    there = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    unknown = [name for name in names if name not in there]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(there)}", file=sys.stderr)
        return 2
    # As an installed package is: else the first run of each would pay for all.
    for package in PACKAGES:
        compileall.compile_dir(HERE.parent.parent / package, quiet=2)
    for name in names or there:
        module = importlib.import_module(f"tests.benchmarks.bench_{name}")
        print(f"\n### {name}\n\n{HEADER}", flush=True)
        for row in module.bench():
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
