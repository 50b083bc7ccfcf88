"""Run simulated histories by hand: `python tests/simulation --seeds 5000` or `--seed 42`.

Every module here whose name ends in `_history` has a `run(seed)` that raises when a promise
is broken. `--figures` runs the paper's cluster and writes docs/simulation.md.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="run seeds 0 … N-1")
    parser.add_argument("--seed", type=int, help="run this one only, and show its failure")
    parser.add_argument("--figures", action="store_true", help="write docs/simulation.md")
    chosen = parser.parse_args()
    if chosen.figures:
        importlib.import_module("tests.simulation.paper_figures").write()
        return 0
    seeds = range(chosen.seeds) if chosen.seed is None else [chosen.seed]
    failed = 0
    for path in sorted(HERE.glob("*_history.py")):
        module = importlib.import_module(f"tests.simulation.{path.stem}")
        began_s = time.monotonic()
        for seed in seeds:
            try:
                module.run(seed)
            except AssertionError as error:
                if chosen.seed is not None:
                    raise
                failed += 1
                print(f"{path.stem}: seed {seed}: {error}", *getattr(error, "__notes__", []))
        took_s = time.monotonic() - began_s
        print(f"{path.stem}: {len(seeds)} histories in {took_s:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
