"""What is closed at the end of a `with` block, whatever ends that."""

from __future__ import annotations

from typing import Self


class Closing:
    """Has a `close`, and may stand in a `with` statement."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
