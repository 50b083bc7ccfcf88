"""The epochs of a master that is alone: a number in a file, higher at every start, and durable.

With one member nobody else can say which life comes after which.
"""

from __future__ import annotations

import os

from mrstream.cluster.errors import JournalCorrupt


class EpochFile:
    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> int:
        """Return the last epoch; 0: there was none."""
        try:
            with open(self._path, encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0
        except ValueError:
            raise JournalCorrupt(
                f"{self._path} holds no number: write one above every epoch so far"
            ) from None

    def next(self) -> int:
        """Return a number higher than at every call before; it is on disk then."""
        epoch = self.read() + 1
        self._write(epoch)
        return epoch

    def raise_to(self, epoch: int) -> None:
        """The next is above this one too; that is on disk then."""
        if epoch > self.read():
            self._write(epoch)

    def _write(self, epoch: int) -> None:
        temporary = f"{self._path}.new"
        with open(temporary, "w", encoding="ascii") as file:
            file.write(f"{epoch}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        directory = os.open(os.path.dirname(self._path), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
