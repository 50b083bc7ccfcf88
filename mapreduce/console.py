"""What a person sees of a running job, on standard error.

On a terminal: one live line under whatever is said. Elsewhere: Hadoop's own lines, so that scripts
which look for ` map 50% reduce 0%` find it. Takes texts and `JobProgress`; never decides, and never
writes to standard output, which belongs to results.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

from mrstream.cluster.terminal import draw, masked
from mrstream.cluster.units import decimal_size, duration, with_commas
from mrstream.mapreduce.progress import JobProgress

LIVE_EVERY_S = 0.2
WIDE_COLUMNS = 110


class Console:
    """Lines for people, and for scripts that read them."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_live: bool | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Quiet, it says no news and shows no progress: warnings, errors and failures only."""
        self._stream = stream if stream is not None else sys.stderr
        dumb = os.environ.get("TERM", "dumb") == "dumb"
        self.is_live = self._stream.isatty() and not dumb if is_live is None else is_live
        """Whether a live line is shown."""
        self._is_quiet = is_quiet
        self._live_line = ""
        self._percents: tuple[int, int] | None = None
        self._drawn_at_s = 0.0
        self._rate = _Rate()
        self._at_line_start = True

    @property
    def shares_terminal(self) -> bool:
        """Whether results go to the same screen: counters would bury them there."""
        return self._stream.isatty() and sys.stdout.isatty()

    def info(self, text: str) -> None:
        if not self._is_quiet:
            self._log("INFO", text)

    def warn(self, text: str) -> None:
        self._log("WARN", text)

    def error(self, text: str) -> None:
        self._log("ERROR", text)

    # What Hadoop's scripts look for, the same wherever the job runs.

    def input_found(self, files: int, splits: int) -> None:
        self.info(f"Total input files to process : {files}")
        self.info(f"number of splits:{splits}")

    def job_runs(self, job_id: str) -> None:
        """Tell that the job is there."""
        self.info(f"Submitting tokens for job: {job_id}")
        self.info(f"Running job: {job_id}")
        self.info(f"Job {job_id} running in uber mode : false")

    def job_in_background(self, output: str | None) -> None:
        self.info("Job is running in background.")
        self.info(f"Output directory: {output}")

    def job_succeeded(self, job_id: str, counters: str, closing: str, output: str | None) -> None:
        """Tell that the job is done; without an output directory its results went out before."""
        self.info(f"Job {job_id} completed successfully")
        if output is not None or not self.shares_terminal:
            self.info(counters)
        self.info(closing)
        if output is not None:
            self.info(f"Output directory: {output}")

    def job_failed(self, job_id: str, state: str, reason: str) -> None:
        self.info(f"Job {job_id} failed with state {state} due to: {reason}")
        self.error("Job not successful!")

    def plain(self, text: str) -> None:
        """Print lines as they are."""
        self._print(text + "\n")

    def said(self, data: bytes) -> None:
        """Pass on what a user's program said."""
        self._print(data.decode("utf-8", "replace"))

    def progress(self, progress: JobProgress, *, force: bool = False) -> None:
        """Show how far the job is; cheap to call often."""
        if self._is_quiet:
            return
        if self.is_live:
            now_s = time.monotonic()
            self._rate.add(progress, now_s)
            if force or now_s - self._drawn_at_s >= LIVE_EVERY_S:
                self._drawn_at_s = now_s
                self._draw(self._line(progress))
            return
        percents = (int(progress.map_fraction * 100), int(progress.reduce_fraction * 100))
        if percents != self._percents:
            self._percents = percents
            self.info(f" map {percents[0]}% reduce {percents[1]}%")

    def end_progress(self) -> None:
        """Take the live line away."""
        self._draw("")

    def _log(self, level: str, text: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        self._print(f"{stamp},{int(now * 1000) % 1000:03d} {level} {text}\n")

    def _print(self, text: str) -> None:
        live = self._live_line
        self._draw("")
        if text and not self._at_line_start and text[:1].isdigit() and text[4:5] == "-":
            text = (
                "\n" + text
            )  # a program's last line had no end; ours start at a line of their own
        self._stream.write(text)
        self._at_line_start = text.endswith("\n") if text else self._at_line_start
        if live and self._at_line_start:
            self._draw(live)
        self._stream.flush()

    def _draw(self, line: str) -> None:
        if self._live_line or line:
            if not self._at_line_start:
                return
            draw(self._stream, "\r\x1b[K" + masked(line))
            self._stream.flush()
            self._live_line = line

    def _line(self, progress: JobProgress) -> str:
        width = shutil.get_terminal_size().columns
        bar = _bar if width >= WIDE_COLUMNS else _no_bar
        parts = [f"map {bar(progress.map_fraction)} {progress.maps_done}/{progress.maps}"]
        if progress.reduces:
            parts.append(f"shuffle {decimal_size(progress.shuffled_bytes)}")
            done = f"{progress.reduces_done}/{progress.reduces}"
            parts.append(f"reduce {bar(progress.reduce_fraction)} {done}")
        records, rate = self._rate.per_second()
        parts.append(f"{with_commas(records)} rec/s {decimal_size(rate)}/s")
        left_s = progress.left_s
        parts.append(duration(progress.elapsed_s) if left_s is None else f"{duration(left_s)} left")
        if progress.status:
            parts.append(progress.status)
        return "  ".join(parts)[: max(10, width - 1)]


class _Rate:
    """Records and bytes a second over the last few seconds."""

    _WINDOW_S = 5.0

    def __init__(self) -> None:
        self._points: list[tuple[float, int, int]] = []

    def add(self, progress: JobProgress, now_s: float) -> None:
        self._points.append((now_s, progress.records, progress.bytes_done))
        while now_s - self._points[0][0] > self._WINDOW_S and len(self._points) > 2:
            del self._points[0]

    def per_second(self) -> tuple[int, int]:
        if len(self._points) < 2:
            return 0, 0
        (t0, records0, bytes0), (t1, records1, bytes1) = self._points[0], self._points[-1]
        passed_s = max(t1 - t0, 1e-3)
        return (
            max(0, int((records1 - records0) / passed_s)),
            max(0, int((bytes1 - bytes0) / passed_s)),
        )


def _bar(fraction: float, width: int = 10) -> str:
    filled = min(width, int(fraction * width))
    return f"[{'#' * filled}{'.' * (width - filled)}] {int(fraction * 100):3d}%"


def _no_bar(fraction: float) -> str:
    return f"{int(fraction * 100)}%"
