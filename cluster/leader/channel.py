"""The asyncio face of `finding`: a channel to whoever leads, for daemons.

A channel is to one member. When it ends, or its leader says `NotLeader`, tell the finding so
(`lost`, `refused`) and connect anew; requests that may have been carried out keep their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mrstream.cluster.consensus.members import host_of
from mrstream.cluster.consensus.standing import NotLeader, Standing, WhoLeads
from mrstream.cluster.errors import HostUnreachable
from mrstream.cluster.leader.finding import Finding, Superseded, superseded
from mrstream.cluster.wire.messages import Message
from mrstream.cluster.wire.network import Channel, Identity

ASK_S_MAX = 3.0


async def open_channel(
    finding: Finding,
    identity: Identity,
    *,
    role: str = "",
    client_id: int | None = None,
    on_push: Callable[[Any], None] | None = None,
    push_types: Sequence[type[Message]] = (),
    timeout_s: float = ASK_S_MAX,
) -> Channel:
    """Connect to the member that leads, or raise `Unavailable` if none does at the moment."""
    while True:
        address = finding.address
        channel: Channel | None = None
        try:
            channel = await Channel.connect(
                address,
                identity,
                role=role,
                client_id=client_id,
                on_push=on_push,
                push_types=push_types,
                timeout_s=timeout_s,
            )
            seen: Standing = await channel.call(WhoLeads(), timeout_s)
        except HostUnreachable:
            if channel is not None:
                channel.close()
            if not finding.lost(address):
                raise
            continue
        if seen.is_serving and finding.accepts(seen.epoch):
            finding.answered(address)
            return channel
        channel.close()
        if seen.is_serving:
            if not finding.lost(address):
                raise Superseded(superseded(address, seen.epoch, finding.epoch))
            continue
        error = NotLeader(
            f"{address} does not lead",
            leader=host_of(seen.leader),
            address=seen.address,
            epoch=seen.epoch,
        )
        if not finding.refused(address, error):
            raise error
