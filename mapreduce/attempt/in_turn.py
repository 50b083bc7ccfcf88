"""A process that runs one attempt after another: what it does between them, and how it is told.

Forking costs a small map more than its work does (docs/decisions/16-processes-take-more-maps.md).
So a process that has done a map well says `Ready`, and whoever started it may write another order
of the same job to its socket. The user's programs are new processes for every attempt. Knows
nothing of what an order says.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from os import dup

from mrstream.mapreduce.attempt.attempt_report import Ready, send
from mrstream.mapreduce.attempt.pipe_frames import receive
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.job.job import JobSpec

ATTEMPTS_MAX = 100
"""A process ends after so many attempts: whatever might pile up in it goes with it."""


def run_in_turn(order: bytes, report: int, run: Callable[[bytes], tuple[int, bool]]) -> int:
    """Run orders while more of them come; return the exit status of the process.

    `run` gives the status of one attempt, and whether the process may take another after it.
    """
    for count in range(1, ATTEMPTS_MAX + 1):
        status, may_go_on = run(order)
        if status != 0 or not may_go_on or count == ATTEMPTS_MAX:
            return status
        send(report, Ready())
        order = _next_order(report)
        if not order:
            break
    return 0


def may_go_on(spec: JobSpec, order: AttemptOrder) -> bool:
    """Whether a process may run another attempt after this one.

    Not after a reduce: news of maps may still be on its socket. Not where memory is limited: what
    an attempt is charged for must be its own.
    """
    return order.is_map and not spec.conf().map_memory_bytes


def _next_order(report: int) -> bytes:
    """Wait for another order; nothing if there is none, or nobody who could give one."""
    with socket.socket(fileno=dup(report)) as ours:
        return receive(ours)
