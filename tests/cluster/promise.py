"""What is promised of a fault: all who use the cluster go on within so many seconds (EV-01).

A round that takes longer is late, which is a verdict. Where the machine had far more to do than
cores to do it with, the times of a round say little of the product: that lateness is told apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

PROMISED_S = {"kill": 10.0}
PROMISED_ELSE_S = 20.0
CROWDED_LOAD = 8.0 * (os.cpu_count() or 1)
"""A load average above this is nobody's normal day."""
LATE = "late"


def promised_s(fault: str) -> float:
    """How long a fault may keep users waiting."""
    return PROMISED_S.get(fault, PROMISED_ELSE_S)


def lateness(fault: str, seconds: Mapping[str, float], load: float) -> str:
    """Say who was late, and in how crowded a machine; nothing if nobody was."""
    limit_s = promised_s(fault)
    late = [f"{name} {took_s:.1f} s" for name, took_s in seconds.items() if took_s > limit_s]
    return called_late(f"{', '.join(late)}, {limit_s:.0f} s are promised", load) if late else ""


def called_late(words: str, load: float) -> str:
    """The verdict of a round that was late for these reasons."""
    crowd = f" (load {load:.0f})" if load > CROWDED_LOAD else ""
    return f"{LATE}{crowd}: {words}"


def is_crowded(verdict: str) -> bool:
    """Is this lateness told apart?"""
    return verdict.startswith(f"{LATE} (load ")


def check_in_time(fault: str, took_s: float) -> None:
    """Fail if users waited for longer than they may."""
    late = lateness(fault, {"users": took_s}, os.getloadavg()[0])
    assert not late or is_crowded(late), f"{fault}: {late}"
