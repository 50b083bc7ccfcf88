"""Attack servers and clients by hand: `python tests/property/fuzz --seeds 5000` or `--seed 42`.

Begins at a seed of the day's making, so that no two long runs are the same, and prints it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.property.fuzz.rooms import Room  # noqa: E402 - the tree must be on the path first

ATTACKS: dict[str, Callable[[Room, int], None]] = {
    "client": Room.hostile_client,
    "server": Room.hostile_server,
}


def run_seed(room: Room, attack: Callable[[Room, int], None], seed: int) -> None:
    """Run one attack; a failure says how to see it again."""
    try:
        attack(room, seed)
    except BaseException as error:
        tls = "--tls " if room.tls is not None else ""
        (name,) = (name for name, known in ATTACKS.items() if known is attack)
        error.add_note(f"replay: python tests/property/fuzz {tls}--hostile {name} --seed {seed}")
        raise


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/property/fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5000, help="how many, of each attack")
    parser.add_argument("--first", type=int, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--hostile", choices=[*ATTACKS, "all"], default="all")
    parser.add_argument("--tls", action="store_true", help="with TLS only (all: both)")
    chosen = parser.parse_args()
    first = chosen.first if chosen.first is not None else random.SystemRandom().randrange(10**9)
    seeds = range(first, first + chosen.seeds) if chosen.seed is None else [chosen.seed]
    names = list(ATTACKS) if chosen.hostile == "all" else [chosen.hostile]
    is_one = chosen.seed is not None
    for has_tls in (True,) if chosen.tls else (False,) if is_one else (False, True):
        for name in names:
            began_s = time.monotonic()
            print(f"hostile {name}: tls={has_tls} seeds from {seeds[0]}", flush=True)
            room = Room(has_tls)
            try:
                for seed in seeds:
                    run_seed(room, ATTACKS[name], seed)
            finally:
                room.close()
            print(f"  {len(seeds)} attacks in {time.monotonic() - began_s:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
