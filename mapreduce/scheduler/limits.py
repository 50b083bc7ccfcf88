"""The numbers that the scheduler goes by; the shell fills them in from cluster.yaml."""

from __future__ import annotations

import msgspec


class SchedulerLimits(msgspec.Struct, frozen=True):
    """Waits and limits of the scheduler itself, the same for all jobs."""

    fetch_failures_max: int = 3
    """Reports of failed fetches after which a map's output counts as lost; of those that come
    between two signs of life of its worker one counts."""
    silence_s_max: float = 0.0
    """A worker that was not heard of for longer is lost; 0: its shell knows of deaths itself."""
    tick_gap_s_max: float = 4.0
    """Ticks further apart mean that the master was stopped: that silence is nobody's fault."""
    quarantine_s: float = 60.0
    restored_hold_s: float = 2.0
    """After a restart: how long a job waits for reports of what already runs."""
    restored_segments_wait_s: float = 10.0
    """After a restart: how long a committed map waits for its worker to register."""
    backup_interval_s: float = 1.0
    """Time between two looks for stragglers."""
