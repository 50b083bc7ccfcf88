"""A line on the terminal that says how far a long copy is; nothing where nobody watches."""

from __future__ import annotations

import threading
import time
from typing import IO

from mrstream.cluster.units import binary_size

REDRAW_S = 0.2
FIRST_S = 1.0
BAR_CHARS = 30


class Progress:
    """Counts bytes of several copies at once; safe for many threads."""

    def __init__(self, out: IO[str], total_bytes: int, *, is_shown: bool) -> None:
        self._out = out
        self._total_bytes = total_bytes
        self._is_shown = is_shown
        self._lock = threading.Lock()
        self._done_bytes = 0
        self._began_s = time.monotonic()
        self._drawn_s = self._began_s + FIRST_S - REDRAW_S
        self._is_drawn = False
        self._is_stopped = False

    def stop(self) -> None:
        """Have every copy end where it next says how far it is."""
        self._is_stopped = True
        if self._is_drawn:
            self._out.write("\n")

    def add(self, count: int) -> None:
        """That many more bytes are copied; raises KeyboardInterrupt if no more should be."""
        if self._is_stopped:
            raise KeyboardInterrupt
        if not self._is_shown:
            return
        with self._lock:
            self._done_bytes += count
            now_s = time.monotonic()
            if now_s - self._drawn_s >= REDRAW_S:
                self._drawn_s = now_s
                self._draw(now_s)

    def finish(self) -> None:
        """Leave the line as it ends."""
        if self._is_drawn:
            self._draw(time.monotonic())
            self._out.write("\n")
            self._out.flush()

    def _draw(self, now_s: float) -> None:
        share = min(1.0, self._done_bytes / self._total_bytes) if self._total_bytes else 1.0
        full = int(share * BAR_CHARS)
        rate = self._done_bytes / max(0.001, now_s - self._began_s)
        left_s = (self._total_bytes - self._done_bytes) / rate if rate else 0.0
        self._out.write(
            f"\r[{'#' * full}{'.' * (BAR_CHARS - full)}] {share:4.0%} "
            f"{binary_size(self._done_bytes)} of {binary_size(self._total_bytes)}, "
            f"{binary_size(rate)}/s, {left_s:.0f} s left  "
        )
        self._out.flush()
        self._is_drawn = True
