"""Clients that work on through faults, and know for certain what was acknowledged to them.

Each has a directory to itself, so that a refusal (the file is there already, or not there any more)
shows a change that was lost or made twice. What nobody answered may have happened or not.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import create


@dataclass
class Ledger:
    """What one client knows."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Path and contents, as acknowledged."""
    unsure: set[str] = field(default_factory=set)
    """Paths of which nobody knows."""
    done: int = 0
    """Operations that were acknowledged."""
    slowest_s: float = 0.0
    """The longest time that one operation took."""
    wrong: list[str] = field(default_factory=list)
    """Refusals that cannot be."""
    given_up: list[str] = field(default_factory=list)
    """What nobody answered in all the time that the client's retries take."""


class Worker(threading.Thread):
    """Makes, renames and deletes files until it is stopped."""

    def __init__(
        self, client: DfsClient, number: int, stopped: threading.Event, below: str = "/work"
    ) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self.ledger = Ledger()
        self.root = f"{below}/{number}"
        self._client, self._stopped = client, stopped
        self._random = random.Random(number)
        self._count = 0

    def run(self) -> None:
        self._client.make_directory(self.root, parents=True)
        while not self._stopped.is_set():
            began_s = time.monotonic()
            try:
                self._step()
                self.ledger.done += 1
            except Unavailable as error:
                self.ledger.given_up.append(f"{type(error).__name__}: {error}")  # paths stay unsure
            except ClusterError as error:
                self.ledger.wrong.append(f"{type(error).__name__}: {error}")
            took_s = time.monotonic() - began_s
            self.ledger.slowest_s = max(self.ledger.slowest_s, took_s)

    def _step(self) -> None:
        ledger, choice = self.ledger, self._random.random()
        self._count += 1
        if choice < 0.5 or len(ledger.files) < 3:
            path = f"{self.root}/file-{self._count}"
            data = self._random.randbytes(self._random.choice([0, 100, 70_000]))
            ledger.unsure.add(path)
            with create(self._client, path) as file:
                file.write(data)
            ledger.unsure.discard(path)
            ledger.files[path] = data
            return
        path = self._random.choice(sorted(ledger.files))
        data = ledger.files.pop(path)
        if choice < 0.8:
            target = f"{self.root}/renamed-{self._count}"
            ledger.unsure |= {path, target}
            self._client.rename(path, target)
            ledger.files[target] = data
            ledger.unsure -= {path, target}
        else:
            ledger.unsure.add(path)
            self._client.delete(path, skip_trash=True)
            ledger.unsure.discard(path)

    def check(self, client: DfsClient) -> None:
        """Everything acknowledged is there, byte for byte, and nothing else."""
        assert not self.ledger.wrong, self.ledger.wrong
        there = {status.path for status in client.list(self.root)}
        expected = set(self.ledger.files)
        assert expected <= there, f"acknowledged and lost: {sorted(expected - there)}"
        extra = there - expected - self.ledger.unsure
        assert not extra, f"deleted or renamed, and there again: {sorted(extra)}"
        for path, data in self.ledger.files.items():
            with DfsReader(client, path) as file:
                assert file.read() == data, f"{path} has other bytes"
