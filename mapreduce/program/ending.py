"""Judges how a user's program ended, by Hadoop's rules (spec 8.2)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mrstream.mapreduce.program.errors import CommandFailed
from mrstream.mapreduce.program.flow import Flow


class ExitRule(msgspec.Struct, frozen=True):
    """When a program's end is a failure."""

    nonzero_is_failure: bool = True
    skip_after_records: int | None = None
    """A broken pipe is fine once it wrote so many records; None: it never is."""


def judge(
    exit_code: int, flow: Flow, rule: ExitRule, records_written: Callable[[], int] = lambda: 0
) -> None:
    """Raise CommandFailed if this end is a failure (spec 8.2)."""
    if exit_code != 0 and rule.nonzero_is_failure:
        raise CommandFailed(
            f"PipeMapRed.waitOutputThreads(): subprocess failed with code {exit_code}",
            exit_code=exit_code,
        )
    if flow.breaks_the_pipe and (
        rule.skip_after_records is None or records_written() < rule.skip_after_records
    ):
        raise CommandFailed(
            "Broken pipe: the program stopped reading with at least "
            f"{flow.given_bytes - flow.read_bytes + flow.left_bytes} bytes of input left "
            "(let it read to the end, or set stream.minRecWrittenToEnableSkip_)",
            exit_code=exit_code,
        )
