"""A program over a replicated journal, as a real process: `python group_process.py NAME DIRECTORY
LEASE_S NAME=GROUP_ADDRESS,CLIENT_ADDRESS …`. Keeps the values of keys; used by test_group.py."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.standing import NotLeader
from mrstream.cluster.errors import Unavailable
from mrstream.cluster.journal.replicated import ReplicatedJournal
from mrstream.cluster.wire.messages import Request, pack, unpack
from mrstream.cluster.wire.network import Identity, Server

SECRET = b"s" * 32


class Put(Request, frozen=True):
    """Set a value; the answer comes when it is committed."""

    reply: ClassVar[Any] = int
    key: str
    value: str


class Get(Request, frozen=True):
    reply: ClassVar[Any] = str
    key: str


class Checkpoint(Request, frozen=True):
    """Write one, and say so when it is there."""


class Hang(Request, frozen=True):
    """Keep the program's loop busy."""

    seconds: float


class Machine:
    """The fold of the log: the last value of each key."""

    def __init__(self, journal: ReplicatedJournal) -> None:
        self._journal = journal
        self._state: dict[str, str] = {}
        self._is_parked = False

    def recover(self) -> None:
        _, pieces = self._journal.recover()
        data = b"".join(pieces)
        self._state = unpack(data, dict[str, str]) if data else {}

    def on_committed(self, sequence: int, payload: bytes) -> None:
        key, value = unpack(payload, tuple[str, str])
        self._state[key] = value

    def on_leadership(self, epoch: int) -> None:
        print(f"leads {epoch}", flush=True)

    def on_parked(self, parked: bool) -> None:
        self._is_parked = parked

    def on_restart(self, reason: str) -> None:
        print(f"restarts: {reason}", flush=True)
        os.execv(sys.executable, [sys.executable, *sys.argv])

    # --- requests

    async def put(self, request: Put, peer: object) -> int:
        self._check()
        sequence = self._journal.append(pack((request.key, request.value)))
        self._state[request.key] = request.value
        await self._journal.when_durable(sequence)
        return self._answer(sequence)

    async def get(self, request: Get, peer: object) -> str:
        self._check()
        value = self._state.get(request.key, "")
        await self._journal.when_durable(self._journal.sequence)
        return self._answer(value)

    async def checkpoint(self, request: Checkpoint, peer: object) -> None:
        thread = self._journal.fork_checkpoint(self._pieces)
        await asyncio.to_thread(thread.join)

    def hang(self, request: Hang, peer: object) -> None:
        import time

        time.sleep(request.seconds)

    def _pieces(self) -> Iterator[bytes]:
        yield pack(self._state)

    def _check(self) -> None:
        if not self._journal.is_leading or self._is_parked:
            raise NotLeader("not here", leader=self._journal.standing().leader)

    def _answer(self, answer: Any) -> Any:
        """C4; without a lease nothing is said about what may be committed by another."""
        if self._journal.lease_left_s() <= 0:
            raise Unavailable("no lease")
        return answer


async def main() -> None:
    name, directory, lease_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    places = dict(place.split("=") for place in sys.argv[4:])
    groups = {host: place.split(",")[0] for host, place in places.items()}
    identity = Identity("trial", SECRET, "group", name)
    timing = Timing(lease_s=lease_s, beat_s=lease_s / 6)
    journal = ReplicatedJournal(
        directory, identity, groups, timing=timing, on_failure=lambda error: os._exit(70)
    )
    machine = Machine(journal)
    machine.recover()
    journal.start(asyncio.get_running_loop(), machine)
    handlers = {
        Put: machine.put,
        Get: machine.get,
        Checkpoint: machine.checkpoint,
        Hang: machine.hang,
    }
    server = Server(handlers, identity)
    await server.start(places[name].split(",")[1])
    print("up", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
