"""A daemon that does nothing but live: what the tests of daemons and launchers start."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from mrstream.cluster import daemon
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Handler, Peer


class Break(Request, frozen=True):
    """Fail as a bug would, on the loop or in a thread."""

    reply: ClassVar[Any] = type(None)
    in_thread: bool = False


class Toy:
    def __init__(self, d: daemon.Daemon) -> None:
        self.daemon = d
        self.handlers: Mapping[type[Any], Handler] = {Break: self.fail}

    async def start(self) -> None:
        logging.getLogger(__name__).info("playing")
        with open(os.path.join(self.daemon.state_directory, "started"), "a") as file:
            file.write("x")

    async def stop(self) -> None:
        with open(os.path.join(self.daemon.state_directory, "stopped"), "a") as file:
            file.write("x")

    def fail(self, request: Break, peer: Peer) -> None:
        if request.in_thread:
            threading.Thread(target=lambda: 1 // 0).start()
        else:
            raise ZeroDivisionError("on the loop")

    def ready(self) -> tuple[bool, str]:
        return True, "playing"

    def metrics(self) -> dict[str, float]:
        return {"toys": 1.0}

    def connected(self, peer: Peer) -> None: ...

    def disconnected(self, peer: Peer) -> None: ...


if __name__ == "__main__":
    sys.exit(daemon.run(os.environ["TOY_ROLE"], Toy))
