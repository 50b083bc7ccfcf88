"""Groups of masters in words: a badge for each member, and a line for each group that is ill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mrstream.cluster.leader.group_view import SILENT, GroupView
from mrstream.view.cells import Cell, warning
from mrstream.view.palette import member_mark
from mrstream.view.picture import Picture
from mrstream.view.words import span


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group: its name, and a badge for each host that has a member of it, who leads first."""

    name: str
    badges: tuple[Cell, ...]
    led_for: str = ""
    """How long that one has led."""


def lines(groups: Mapping[str, GroupView], now_s: float) -> list[GroupLine]:
    """Return a line for each group."""
    return [
        GroupLine(
            name, tuple(_badge(view, host) for host in _leader_first(view)), _for(view, now_s)
        )
        for name, view in groups.items()
    ]


def troubles(groups: Mapping[str, GroupView]) -> list[Cell]:
    """Return a warning for each group that is not well."""
    return [warning(f"✗ {said}") for view in groups.values() if (said := view.trouble())]


def of_host(groups: Mapping[str, GroupView], host: str) -> str:
    """Return what a host is in each of its groups."""
    here = [(name, view) for name, view in groups.items() if host in view.members]
    return "; ".join(f"{name} {view.badge(host)}" for name, view in here)


def silent_on(groups: Mapping[str, GroupView], host: str) -> tuple[str, ...]:
    """Return the groups whose member on this host does not answer."""
    members = {name: view.members.get(host) for name, view in groups.items()}
    return tuple(name for name, member in members.items() if member and member.state == SILENT)


def last_event(picture: Picture, now_s: float) -> str:
    """Return who took over last, and how long ago; nothing if that is not known."""
    if not picture.events:
        return ""
    last = picture.events[-1]
    return f"{span(max(0.0, now_s - last.at_s))} ago: {last.text}"


def _leader_first(view: GroupView) -> list[str]:
    return sorted(view.members, key=lambda host: host != view.leader)


def _badge(view: GroupView, host: str) -> Cell:
    mark = member_mark(view.members[host].state)
    return Cell(f"{mark.sign} {host} {view.badge(host)}", mark.colour, mark.loud)


def _for(view: GroupView, now_s: float) -> str:
    return f"led for {span(max(0.0, now_s - view.since_s))}" if view.since_s else ""
