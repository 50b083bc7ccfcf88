"""dfs.master_link: a real chunkserver, and masters that are the answers they give; and the other
end of the link, where a leader sends its orders."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from mrstream.cluster.clock import SystemClock
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import Peer, Server
from mrstream.dfs.chunk import (
    FIRST_VERSION,
    ROOT_CELL,
    ChunkHandle,
    ServerId,
    epoch_of_command,
    first_command_id,
)
from mrstream.dfs.chunks.chunk_store import Reserve
from mrstream.dfs.chunkserver import CellPlan, ChunkServer, ServerPlan
from mrstream.dfs.errors import NotRegistered
from mrstream.dfs.master import Master as LeadingMaster
from mrstream.dfs.metadata.events import Send
from mrstream.dfs.protocol import (
    CommandDone,
    CreateChunk,
    Heartbeat,
    HeartbeatReply,
    Register,
    ReportChunks,
    ServerAddress,
    ServerSettings,
)

SECRET = b"k" * 32
ROLE = "dfs.master"


class Master:
    """One life of a member of the masters' group, at an address that its next life has too."""

    def __init__(self) -> None:
        self.epoch = 0
        self.is_known = True
        self.done: dict[int, CommandDone] = {}
        self.registrations = 0
        self.server = Server(
            {
                Register: self._register,
                ReportChunks: lambda ask, peer: None,
                Heartbeat: self._beat,
                CommandDone: self._take,
            },
            Identity("c1", SECRET, ROLE, "h1"),
        )

    def lead(self, epoch: int) -> None:
        """From now on nobody is registered here."""
        self.epoch, self.is_known = epoch, False

    def _register(self, ask: Register, peer: Peer) -> ServerSettings:
        self.registrations += 1
        if not self.epoch and not self.is_known:
            raise NotRegistered("the log here does not know of it yet")
        self.is_known = True
        if self.epoch:
            # A leader gives orders to whoever has registered, right behind its answer.
            handle, order = ChunkHandle(self.epoch), first_command_id(self.epoch)
            create = CreateChunk(order, handle, FIRST_VERSION, 0.0, since=ask.number)
            asyncio.get_running_loop().call_soon(peer.push, create)
        return ServerSettings(0.02, 60.0, 5.0, 1 << 20, 0, epoch=self.epoch, leads=self.epoch > 0)

    def _beat(self, ask: Heartbeat, peer: Peer) -> HeartbeatReply:
        if not self.is_known:
            raise NotRegistered("register first")
        return HeartbeatReply()

    def _take(self, ask: CommandDone, peer: Peer) -> None:
        self.done[epoch_of_command(ask.command_id)] = ask


def failed(error: BaseException, where: str) -> NoReturn:
    raise AssertionError(where) from error


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(10.0):
        while not true():
            await asyncio.sleep(0.005)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def a_chunkserver(directory: Path, master: str) -> Any:
    plan = ServerPlan(
        ServerId("h1"), "127.0.0.1", 0, 0, (CellPlan(ROOT_CELL, ROLE, (master,)),),
        (str(directory),), reserve=Reserve(fraction=0.0),
    )  # fmt: skip
    identity = Identity("c1", SECRET, "dfs.chunkserver", "h1")
    server = ChunkServer(plan, identity, clock=SystemClock(), fail=failed)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def test_an_order_right_behind_a_registration_is_carried_out(tmp_path: Path) -> None:
    """A shadow begins to lead: while the server writes down the new epoch, orders come already."""

    async def story() -> CommandDone:
        master = Master()
        address = await master.server.start("127.0.0.1:0")
        async with a_chunkserver(tmp_path, address):
            await until(lambda: master.registrations)
            master.lead(2)
            await until(lambda: 2 in master.done)
        await master.server.close()
        return master.done[2]

    assert asyncio.run(story()).ok


def test_a_leader_that_was_killed_and_leads_again_hears_of_its_first_order(tmp_path: Path) -> None:
    """The guard starts it anew, and it is elected before it has taken a registration as a shadow:
    the server carried its first order out, took the answer for one to the master of before, and
    told nobody. Every writer whose chunk it was for waited until the order was given up."""

    async def story() -> CommandDone:
        address = f"127.0.0.1:{free_port()}"
        first = Master()
        first.lead(1)
        await first.server.start(address)
        async with a_chunkserver(tmp_path, address):
            await until(lambda: 1 in first.done)
            await first.server.close()
            second = Master()
            second.is_known = False
            await second.server.start(address)
            await until(lambda: second.registrations)
            second.lead(2)
            await until(lambda: 2 in second.done)
            await second.server.close()
        return second.done[2]

    assert asyncio.run(story()).ok


class Shell(LeadingMaster):
    """The leader's shell alone: what the brain decides about a registration is given."""

    def __init__(self, decides: Callable[[], None]) -> None:
        self._cluster_id = "c1"
        self._peers: dict[ServerId, Any] = {}
        self._decides = decides
        self._brain: Any = SimpleNamespace(is_registered=lambda name, incarnation: True)

    def _call(self, request: Any, peer: Any) -> None:
        self._decides()


def registration() -> Register:
    address = ServerAddress(ServerId("h1"), "h1", 1, 2, "")
    return Register(address, 7, "c1", (), ())


def test_what_is_decided_with_a_registration_goes_down_its_connection() -> None:
    """A grant or a clone that waited for this server: it was sent before the shell knew where to,
    and its answer awaited until it was given up."""
    pushed: list[Any] = []
    order = CreateChunk(1, ChunkHandle(1), FIRST_VERSION, 0.0)
    peer: Any = SimpleNamespace(context=None, push=pushed.append)
    shell = Shell(lambda: shell._carry_out(Send(ServerId("h1"), 7, order)))

    shell._register(registration(), peer)

    assert pushed == [order]


def test_after_a_registration_that_was_refused_orders_go_where_they_went() -> None:
    def refuse() -> None:
        raise NotRegistered("it was overtaken")

    shell, old, late = Shell(refuse), SimpleNamespace(context=("h1", 7)), SimpleNamespace(context=0)
    shell._peers[ServerId("h1")] = old

    with pytest.raises(NotRegistered):
        shell._register(registration(), late)  # type: ignore[arg-type]

    assert shell._peers == {"h1": old} and late.context == 0
