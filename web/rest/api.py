"""Our own snapshots as JSON: `/api/v1/jobs[/J]`, `/api/v1/hosts`, `/api/v1/storage`.

Fields are those of the rows (`mapreduce/snapshot.py`, `view/picture.py`): names carry their units,
moments are seconds since 1970 by the masters' clock.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mrstream.mapreduce.snapshot import JobBoard, by_name
from mrstream.view.picture import Picture

Value = dict[str, Any]


def jobs(picture: Picture) -> Value:
    return _head(picture) | {"jobs": [by_name(job) for job in picture.jobs]}


def job(board: JobBoard, remarks: tuple[str, ...]) -> Value:
    """One job: its row, counters, curves, what happened, and what stands out."""
    return {
        "job": by_name(board.job),
        "counters": board.counters,
        "rates": [by_name(point) for point in board.rates],
        "events": [by_name(event) for event in board.events],
        "remarks": list(remarks),
    }


def hosts(picture: Picture) -> Value:
    return _head(picture) | {
        "workers": [by_name(host) for host in picture.hosts],
        "chunkservers": [asdict(server) for server in picture.storage.servers],
    }


def storage(picture: Picture) -> Value:
    servers = picture.storage.servers
    return _head(picture) | {
        "chunks": asdict(picture.storage.counts),
        "used_bytes": sum(server.used_bytes for server in servers),
        "capacity_bytes": sum(server.capacity_bytes for server in servers),
    }


def _head(picture: Picture) -> Value:
    return {"cluster": picture.cluster, "at_s": picture.at_s, "lost_reason": picture.lost_reason}
