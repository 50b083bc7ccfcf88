"""The line at the top of every page: the cluster at a glance, and whether we still hear of it."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from tui.snapshot import Picture
from tui.words import size, span


def summary(picture: Picture, now_s: float, *, read_only: bool) -> Text:
    """Give the one line that answers: is everything all right?"""
    hosts = list(picture.hosts)
    up = sum(host.state == "up" for host in hosts)
    slots = sum(host.slots for host in hosts if host.state == "up")
    used = sum(host.slots_used for host in hosts if host.state == "up")
    running = sum(job.state == "running" for job in picture.jobs)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f" {picture.cluster or 'no cluster'} ", "bold reverse")
    if picture.lost_reason:
        silent = span(max(0.0, now_s - picture.lost_at_s))
        line.append(f" ✗ NO ANSWER for {silent}: {picture.lost_reason} ", "bold white on #d55e00")
        line.append(" last picture below; trying again")
        return line
    line.append("  hosts ", "dim").append(
        f"{up}/{len(hosts)}", "bold" if up == len(hosts) else "bold #d55e00"
    )
    line.append("  slots ", "dim").append(f"{used}/{slots}", "bold")
    line.append("  jobs ", "dim").append(str(running), "bold")
    line.append_text(_storage(picture))
    if read_only:
        line.append("  read-only", "italic dim")
    return line


def _storage(picture: Picture) -> Text:
    counts, text = picture.storage.counts, Text()
    if not picture.storage.servers:
        return text
    used = sum(server.used_bytes for server in picture.storage.servers)
    capacity = sum(server.capacity_bytes for server in picture.storage.servers)
    text.append("  dfs ", "dim").append(f"{size(used)}/{size(capacity)}", "bold")
    if counts.healthy:
        text.append(f"  ✓ {counts.total:,} chunks", "#56b4e9")
    for number, word in (
        (counts.missing, "missing"),
        (counts.corrupt, "corrupt"),
        (counts.under_replicated, "under-replicated"),
    ):
        if number:
            text.append(f"  ✗ {number:,} {word}", "bold #d55e00")
    if counts.repairing:
        text.append(f"  ↻ {counts.repairing:,} repairing", "#f0e442")
    return text


class Summary(Static):
    """The summary line; drawn again only when its text differs."""

    DEFAULT_CSS = "Summary { height: 1; }"

    def __init__(self) -> None:
        super().__init__("", id="summary")
        self._shown = ""

    def show(self, picture: Picture, now_s: float, *, read_only: bool) -> None:
        """Draw the line for this picture."""
        line = summary(picture, now_s, read_only=read_only)
        if line.markup != self._shown:
            self._shown = line.markup
            self.update(line)
