"""The network as the rest of the house sees it: one door to servers, clients and bulk streams.

Small messages go over the control plane: `Server` answers, `Channel` asks from an asyncio loop,
`Connection` asks from blocking code. Bytes in bulk have connections of their own: `BulkServer`,
`bulk_connect`. Every connection begins with the handshake of `handshake.py`.
"""

from __future__ import annotations

import asyncio
from typing import cast

from cluster.bulk import BulkServer, bulk_connect
from cluster.bulk_stream import BulkStream
from cluster.channel import Channel
from cluster.connection import Connection
from cluster.identity import Identity, PeerIdentity
from cluster.server import Handler, Observer, Peer, Server

__all__ = [
    "BulkServer",
    "BulkStream",
    "Channel",
    "Connection",
    "Handler",
    "Identity",
    "Observer",
    "Peer",
    "PeerIdentity",
    "Server",
    "bulk_connect",
    "new_event_loop",
]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of the fastest kind at hand."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())
