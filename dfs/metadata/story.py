"""What happened lately to each chunk and file, and why: kept in memory, bounded, for people to ask.

Never decides anything and never does any IO.
"""

from __future__ import annotations

from collections import deque

from mrstream.dfs.protocol import StoryLine

LINES_MAX = 50_000


class Chronicle:
    """The last lines of every story, oldest first."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, int, int, str]] = deque(maxlen=LINES_MAX)
        self.wall_s = 0.0

    def tell(self, text: str, *, handle: int = 0, file_id: int = -1) -> None:
        """Note what happened to a chunk and/or a file."""
        self._lines.append((self.wall_s, handle, file_id, text))

    def of_chunk(self, handle: int) -> tuple[StoryLine, ...]:
        return tuple(StoryLine(at, text) for at, h, _, text in self._lines if h == handle)

    def of_file(self, file_id: int, handles: list[int]) -> tuple[StoryLine, ...]:
        """The file's own lines and those of its chunks."""
        wanted = dict.fromkeys(handles)
        return tuple(
            StoryLine(at, f"chunk {h:016x}: {text}" if h and f != file_id else text)
            for at, h, f, text in self._lines
            if f == file_id or h in wanted
        )
