"""A server's link to a master: connect, register, beat until the connection is lost, and again.

Here are the order of these and the words when a master is away; what is registered, told and heard
is the server's affair.
"""

from __future__ import annotations

import asyncio
import logging

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.network import Channel

RECONNECT_S = 0.2


class Link:
    """In touch with a master, whenever there is one."""

    is_registered = False
    beat_s = 1.0
    """Between two beats."""
    channel: Channel | None = None
    """None: there is no connection."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    async def talk(self) -> None:
        """Be in touch with the master, without end."""
        said = ""
        while True:
            try:
                await self._with_master()
            except ClusterError as error:
                # Also a refusal: the port may be another program's for a while.
                if self.is_ours(error):
                    raise
                if self.is_registered or str(error) != said:
                    self._log.info("master=%s unavailable: %s", self.address, error)
                said = str(error)
            was_registered, self.is_registered = self.is_registered, False
            self.away(was_registered=was_registered)
            await asyncio.sleep(RECONNECT_S)

    async def _with_master(self) -> None:
        self.channel = channel = await self.connect()
        try:
            await self.register(channel)
            while True:
                if not await self.beat(channel):
                    await self.register(channel)
                await asyncio.wait([channel.closed], timeout=self.beat_s)
                if channel.closed.done():
                    raise channel.closed.result()
        finally:
            self.channel = None
            self.parted()
            channel.close()

    # --- what a server brings

    @property
    def address(self) -> str:
        """Where the master is, as far as is known."""
        raise NotImplementedError

    async def connect(self) -> Channel:
        raise NotImplementedError

    async def register(self, channel: Channel) -> None:
        """Say who we are; set `is_registered` and `beat_s`."""
        raise NotImplementedError

    async def beat(self, channel: Channel) -> bool:
        """Say what is new; false: the master does not know us (any more)."""
        raise NotImplementedError

    def is_ours(self, error: ClusterError) -> bool:
        """Whether an error is our own, not the master's: it ends the talk."""
        return False

    def parted(self) -> None:
        """The connection is over."""

    def away(self, *, was_registered: bool) -> None:
        """The master is away; called before each new try."""
