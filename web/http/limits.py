"""How much one client may ask of a server, in one place; and how slow it may be."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
CONNECTION_BYTES = 256 * KIB
"""What a connection holds beside a stream's share: of a request that waits, what came of its body;
of a short answer, the answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a listening server. What goes beyond is answered by its status, then closed."""

    connections: int = 1024
    connections_of_one: int = 64
    """From one address, unless it is trusted."""
    handshake_s: float = 5.0
    """For TLS."""
    idle_s: float = 30.0
    """A connection kept open between requests."""
    line_bytes: int = 8 * KIB
    header_bytes: int = 8 * KIB
    headers: int = 64
    head_s: float = 10.0
    """From the first byte of a request to the end of its headers."""
    form_bytes: int = 2 * MIB
    """Of a body that is no file: a form, XML."""
    form_s: float = 30.0
    pace_bytes_per_s: int = 1 * KIB
    """What moves more slowly than this..."""
    pace_s: float = 60.0
    """...over this time is cut."""
    linger_s: float = 1.0
    """How long a refused body is read and thrown away, so that its sender hears the refusal."""
    stop_s: float = 20.0
    """For requests under way when the server stops."""


class Pace:
    """How fast one side of a stream moves, counting only the time spent waiting for it.

    A reader that is slow because our own disks are slow loses nothing by it. No clock of its own:
    it is told how long was waited, and how many bytes came of that.
    """

    def __init__(self, limits: Limits) -> None:
        self._least_bytes = limits.pace_bytes_per_s * limits.pace_s
        self._window_s = limits.pace_s
        self._waited_s = 0.0
        self._moved_bytes = 0

    @property
    def patience_s(self) -> float:
        """How long the next wait may last."""
        return max(self._window_s - self._waited_s, 0.0)

    def moved(self, count: int, waited_s: float) -> bool:
        """So many bytes moved after waiting so long; False: too slow, cut it."""
        self._moved_bytes += count
        self._waited_s += waited_s
        if self._moved_bytes >= self._least_bytes:
            # Fast enough so far: a new window begins.
            self._waited_s, self._moved_bytes = 0.0, 0
            return True
        return self._waited_s < self._window_s
