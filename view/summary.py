"""The cluster at a glance: is everything all right, and do we still hear of it?"""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.view.cells import Cell, warning
from mrstream.view.palette import Colour
from mrstream.view.picture import Picture
from mrstream.view.words import size, span

NO_ANSWER_YET = "The master has not answered yet: `mrstream cluster doctor` says why."


@dataclass(frozen=True, slots=True)
class Part:
    """One figure of the summary; the higher its rank, the sooner it is left out."""

    rank: int
    cell: Cell
    label: str = ""


def silence(picture: Picture, now_s: float) -> str:
    """Return for how long no master answered, and why; nothing while they do."""
    if not picture.lost_reason:
        return ""
    silent_s = max(0.0, now_s - picture.lost_at_s)
    return f"✗ NO ANSWER for {span(silent_s)}: {picture.lost_reason}"


def parts(picture: Picture) -> list[Part]:
    """Return the figures in their order. What is wrong has rank 0: there is always room for it."""
    return [*_work(picture), *_storage(picture)]


def _work(picture: Picture) -> list[Part]:
    hosts = list(picture.hosts)
    up = [host for host in hosts if host.state == "up"]
    slots, used = sum(host.slots for host in up), sum(host.slots_used for host in up)
    running = sum(job.state == "running" for job in picture.jobs)
    figure = f"{len(up)}/{len(hosts)}"
    return [
        Part(0, Cell(figure, loud=True) if len(up) == len(hosts) else warning(figure), "hosts"),
        Part(3, Cell(f"{used}/{slots}", loud=True), "slots"),
        Part(2, Cell(str(running), loud=True), "jobs"),
    ]


def _storage(picture: Picture) -> list[Part]:
    counts = picture.storage.counts
    if not picture.storage.servers:
        return []
    used = sum(server.used_bytes for server in picture.storage.servers)
    capacity = sum(server.capacity_bytes for server in picture.storage.servers)
    said = [Part(5, Cell(f"{size(used)}/{size(capacity)}", loud=True), "dfs")]
    if counts.healthy:
        said.append(Part(4, Cell(f"✓ {counts.total:,} chunks", Colour.SKY)))
    for number, word in (
        (counts.missing, "missing"),
        (counts.corrupt, "corrupt"),
        (counts.under_replicated, "under-replicated"),
    ):
        if number:
            said.append(Part(0, warning(f"✗ {number:,} {word}")))
    if picture.storage.lacks_log_copies:
        in_step, wanted = picture.storage.log_copies
        said.append(Part(0, warning(f"✗ master's log: {in_step}/{wanted} copies")))
    if counts.repairing:
        said.append(Part(6, Cell(f"↻ {counts.repairing:,} repairing", Colour.YELLOW)))
    return said
