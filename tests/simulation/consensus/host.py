"""A host of the simulation: disk, clock, boots, and the process that runs there, if one does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus.events import JoinAsked, Received
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, member_id
from mrstream.cluster.journal.ballot_file import SLOT_BYTES, decode_slot
from tests.simulation.consensus.network import Network
from tests.simulation.consensus.oracle import Oracle
from tests.simulation.consensus.process import DIRECTORY, Process
from tests.simulation.world import Clock
from tests.support.forgetful_disk import ForgetfulDisk


class Host:
    """One machine."""

    def __init__(
        self,
        name: str,
        network: Network,
        oracle: Oracle,
        timing: Timing,
        process_kind: type[Process] = Process,
    ) -> None:
        self.name = name
        self.world, self.oracle, self.timing = network.world, oracle, timing
        self.random = Random(network.random.random())
        self.disk = ForgetfulDisk(self.random.randrange(1 << 30))
        self.clock = Clock(self.world, booted_at_s=-1000.0)
        self.process_kind = process_kind
        self.process: Process | None = None
        self.is_lively = True
        self.stopped_until_s = 0.0
        self.slow_disk_until_s = 0.0
        self.crash_chance = 0.0
        """A power cut before any single command, by this chance."""
        self.message_bytes_max = 40
        self.answers: dict[int, c.Accepted | c.Refused] = {}
        self.network: Callable[[MemberId, MemberId, Any], None] = network.send
        self.down_for_s: tuple[float, float] = (0.1, 3.0)
        self._journals = 0
        self._boots = 0
        self._starts = 0

    # --- being

    def start(self) -> None:
        if self.process is None:
            self.process = self.process_kind(self)

    def clock_s(self) -> float:
        return self.clock.now_s()

    @property
    def boot_id(self) -> bytes:
        return f"boot-{self._boots:011d}".encode()

    def durable_ballot(self) -> tuple[int, bytes]:
        """(epoch, voted for) as a power cut would leave them."""
        data = self.disk.synced_bytes(f"{DIRECTORY}/ballot")
        slots = [decode_slot(data[:SLOT_BYTES]), decode_slot(data[SLOT_BYTES:])]
        return max([slot for slot in slots if slot is not None], default=(0, 0, b""))[1:]

    def new_journal(self) -> bytes:
        return f"{self.name}-{self._journals:d}".ljust(16, ".").encode()

    def member(self) -> MemberId:
        """The name that the journal here has, or would have."""
        if self.process is not None:
            return self.process.me
        return member_id(self.name, self.new_journal().decode())

    def sync_s(self) -> float:
        if self.world.now_s < self.slow_disk_until_s:
            return self.random.uniform(0.5, 4.0)
        return self.random.uniform(0.0005, 0.01)

    # --- ending

    def end(self, power: bool) -> None:
        """The process ends here and now; with the power goes what was not synced."""
        self._starts += 1
        if self.process is not None:
            self.process.is_alive = False
            self.process = None
        if power:
            self.disk.crash()
            self._boots += 1
            self.clock.booted_at_s = self.world.now_s - 5.0

    def restart(self, delay_s: float) -> None:
        """The process ends and another takes its place."""
        self.end(power=False)
        self.start_after(delay_s)

    def start_after(self, delay_s: float) -> None:
        starts = self._starts
        self.world.after(delay_s, lambda: self.start() if starts == self._starts else None)

    def stop(self, seconds: float) -> None:
        """The process stands still; the clock does not."""
        self.stopped_until_s = self.world.now_s + seconds

    def empty(self) -> None:
        """The disk is replaced by a new one."""
        self.end(power=True)
        self.disk = ForgetfulDisk(self.random.randrange(1 << 30))
        self._journals += 1

    def maybe_crash(self, command: c.Command) -> None:
        if self.crash_chance and self.random.random() < self.crash_chance:
            self.world.note(f"{self.name} loses power before {type(command).__name__}")
            self.lose_power(self.random.uniform(*self.down_for_s))

    def lose_power(self, down_s: float) -> None:
        """It comes back after so long."""
        self.end(power=True)
        self.start_after(down_s)

    # --- hearing

    def when_running(self, process: Process, action: Callable[[], None]) -> None:
        """Do it now, or when the stopped process goes on; never in a later life."""
        if process is not self.process:
            return
        if self.world.now_s < self.stopped_until_s:
            self.world.at(self.stopped_until_s, lambda: self.when_running(process, action))
        else:
            action()

    def receive(self, sender: MemberId, to: MemberId, word: Any) -> None:
        process = self.process
        if process is None:
            return
        if isinstance(word, tuple) and word[0] == "checkpoint":
            if process.me == to:
                self.when_running(process, lambda: process.install(*word[1:]))
        elif isinstance(word, JoinAsked):
            self.when_running(process, lambda: process.handle(word))
        elif self.takes(process, to):
            event = Received(sender, word)
            self.when_running(process, lambda: process.handle(event))

    def takes(self, process: Process, to: MemberId) -> bool:
        """C5: what is for a journal that is no longer here reaches nobody."""
        return process.me == to


class PlacedHost(Host):
    """A machine whose process clients reach by the connections of the world: the place that they
    lead to is up while it runs."""

    def start(self) -> None:
        is_new = self.process is None
        self.world.hosts[self.name].is_up = True
        super().start()
        if is_new and self.process is not None:
            self.process.begin()

    def end(self, power: bool) -> None:
        place = self.world.hosts[self.name]
        place.is_up = False
        place.life += 1
        place.stopped_until_s = self.stopped_until_s = 0.0
        super().end(power)

    def stop(self, seconds: float) -> None:
        super().stop(seconds)
        self.world.hosts[self.name].stopped_until_s = self.stopped_until_s
