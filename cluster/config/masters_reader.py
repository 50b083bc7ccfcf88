"""The keys of cluster.yaml about who leads: `master`, `masters`, `learner`, `failover_after`."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from mrstream.cluster.config.config import HostConfig
from mrstream.cluster.config.values import Reader, parse_name, seconds_between, suggestion

COUNTS = (1, 3, 5)
MASTERS_COUNT = 3
"""So many where nobody says, and there are hosts for it."""
FAILOVER_AFTER_S = 3.0


def read_masters(
    reader: Reader, keys: dict[str, yaml.Node], hosts: Sequence[HostConfig]
) -> tuple[str, tuple[str, ...], str, float]:
    """Return who leads first, the hosts that can lead (none: that one alone), the one that only
    listens, and the lease."""
    names = [host.name for host in hosts]
    masters = _hosts(reader, keys.get("masters"), names)
    first = next(iter([*masters, *names]), "")
    master: str = reader.scalar(keys, "master", "", parse_name, first)
    if names and master not in names:
        reader.wrong(
            keys.get("master"),
            f"master is {master!r}, which is not a host{suggestion(master, names)}",
        )
    elif masters and master not in masters:
        reader.wrong(
            keys.get("master"),
            f"master is {master!r}, which leads first, but masters has {', '.join(masters)}: "
            "name it there too",
        )
    lease = seconds_between(1.0, 60.0)
    lease_s: float = reader.scalar(keys, "failover_after", "", lease, FAILOVER_AFTER_S)
    learner: str = reader.scalar(keys, "learner", "", parse_name, "")
    if learner:
        _check_learner(reader, keys["learner"], learner, master, masters, names)
    elif "masters" not in keys and master in names:
        masters, learner = masters_by_themselves(master, hosts)
    return master, masters if len(masters) > 1 else (), learner, lease_s


def _check_learner(
    reader: Reader,
    node: yaml.Node,
    learner: str,
    master: str,
    masters: tuple[str, ...],
    names: list[str],
) -> None:
    if learner not in names:
        reader.wrong(
            node, f"learner is {learner!r}, which is not a host{suggestion(learner, names)}"
        )
    elif len(masters) > 1:
        reader.wrong(node, "learner is for one master: each of several masters has the log")
    elif learner == master:
        reader.wrong(node, f"learner is {learner!r}, the master itself: name another host")


def masters_by_themselves(master: str, hosts: Sequence[HostConfig]) -> tuple[tuple[str, ...], str]:
    """Return the hosts that can lead, and the one that only listens, where nobody has named them:
    of three hosts and more three, other racks first; of two, both keep the log. On one machine
    (all `via: local`) more than one gains nothing."""
    others = [host for host in hosts if host.name != master]
    if not others or all(host.via == "local" for host in hosts):
        return (), ""
    if len(others) == 1:
        return (), others[0].name
    chosen = [host for host in hosts if host.name == master]
    while len(chosen) < MASTERS_COUNT:
        racks = [host.rack for host in chosen]
        left = [host for host in others if host not in chosen]
        chosen.append(min(left, key=lambda host: racks.count(host.rack)))
    return tuple(host.name for host in chosen), ""


def _hosts(reader: Reader, node: yaml.Node | None, names: list[str]) -> tuple[str, ...]:
    if node is None:
        return ()
    if not isinstance(node, yaml.SequenceNode):
        reader.wrong(node, "masters must be a list, such as [h1, h2, h3]")
        return ()
    masters: list[str] = []
    for item in node.value:
        name = item.value if isinstance(item, yaml.ScalarNode) else ""
        if not isinstance(name, str) or name not in names:
            reader.wrong(item, f"masters: {name!r} is not a host{suggestion(str(name), names)}")
        elif name in masters:
            reader.wrong(item, f"masters names {name} twice")
        else:
            masters.append(name)
    count = len(node.value)
    if count not in COUNTS:
        more = f", so {count} bear the loss of no more hosts than {count - 1}" if count > 1 else ""
        reader.wrong(
            node,
            f"masters names {count} hosts; it must be 1, 3 or 5: changes need a majority{more}",
        )
    return tuple(masters)
