"""The network as the rest of the house sees it: one door to servers, clients and bulk streams.

Small messages go over the control plane: `Server` answers, `Channel` asks from an asyncio loop,
`Connection` asks from blocking code. Bytes in bulk have connections of their own: `BulkServer`,
`bulk_connect`. Every connection begins with the handshake of `handshake.py`.
"""

from __future__ import annotations

import asyncio
from typing import cast

from mrstream.cluster.wire.bulk import BulkServer, bulk_connect
from mrstream.cluster.wire.bulk_stream import BulkStream
from mrstream.cluster.wire.channel import Channel
from mrstream.cluster.wire.connection import Connection
from mrstream.cluster.wire.identity import Identity, PeerIdentity
from mrstream.cluster.wire.server import Handler, Observer, Peer, Server

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
