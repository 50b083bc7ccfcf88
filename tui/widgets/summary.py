"""The line at the top of every page: the cluster at a glance, and whether we still hear of it."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from view.picture import Picture
from view.words import size, span

LOST_STYLE = "bold #ffffff on #b04a00"


def summary(picture: Picture, now_s: float, *, read_only: bool, width: int = 200) -> Text:
    """Give the one line that answers: is everything all right? What is wrong comes before what is
    merely good to know, which is left out where there is no room for it."""
    line = Text().append(f" {picture.cluster or 'no cluster'} ", "bold reverse")
    if picture.lost_reason:
        silent = span(max(0.0, now_s - picture.lost_at_s))
        line.append(f" ✗ NO ANSWER for {silent}: {picture.lost_reason} ", LOST_STYLE)
        return line.append(" last picture below; trying again")
    parts = [*_work(picture), *_storage(picture)]
    if read_only:
        parts.append((1, Text("read-only", "italic dim")))
    while parts and len(line) + sum(len(part) + 2 for _, part in parts) > width:
        parts.remove(max(parts, key=lambda part: part[0]))
    for _, part in parts:
        line.append("  ").append_text(part)
    return line


def _figure(label: str, value: str, style: str = "bold") -> Text:
    return Text().append(f"{label} ", "dim").append(value, style)


def _work(picture: Picture) -> list[tuple[int, Text]]:
    """Hosts, slots and jobs, each with its rank: the higher, the sooner it is left out."""
    hosts = list(picture.hosts)
    up = [host for host in hosts if host.state == "up"]
    slots, used = sum(host.slots for host in up), sum(host.slots_used for host in up)
    running = sum(job.state == "running" for job in picture.jobs)
    all_up = "bold" if len(up) == len(hosts) else "bold #d55e00"
    return [
        (0, _figure("hosts", f"{len(up)}/{len(hosts)}", all_up)),
        (3, _figure("slots", f"{used}/{slots}")),
        (2, _figure("jobs", str(running))),
    ]


def _storage(picture: Picture) -> list[tuple[int, Text]]:
    counts = picture.storage.counts
    if not picture.storage.servers:
        return []
    used = sum(server.used_bytes for server in picture.storage.servers)
    capacity = sum(server.capacity_bytes for server in picture.storage.servers)
    parts = [(5, _figure("dfs", f"{size(used)}/{size(capacity)}"))]
    if counts.healthy:
        parts.append((4, Text(f"✓ {counts.total:,} chunks", "#56b4e9")))
    for number, word in (
        (counts.missing, "missing"),
        (counts.corrupt, "corrupt"),
        (counts.under_replicated, "under-replicated"),
    ):
        if number:
            parts.append((0, Text(f"✗ {number:,} {word}", "bold #d55e00")))
    if counts.repairing:
        parts.append((6, Text(f"↻ {counts.repairing:,} repairing", "#f0e442")))
    return parts


class Summary(Static):
    """The summary line; drawn again only when its text differs."""

    DEFAULT_CSS = "Summary { height: 1; }"

    def __init__(self) -> None:
        super().__init__("", id="summary")
        self._shown = ""

    def show(self, picture: Picture, now_s: float, *, read_only: bool) -> None:
        """Draw the line for this picture."""
        line = summary(picture, now_s, read_only=read_only, width=self.app.size.width)
        if line.markup != self._shown:
            self._shown = line.markup
            self.update(line)
