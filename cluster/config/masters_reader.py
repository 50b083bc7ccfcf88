"""The keys of cluster.yaml about who leads: `master`, `masters`, `failover_after`."""

from __future__ import annotations

from typing import Any, Final, Protocol

import yaml

from mrstream.cluster.config.values import Parse, parse_name, seconds_between, suggestion

COUNTS: Final = (1, 3, 5)
FAILOVER_AFTER_S: Final = 3.0


class Reader(Protocol):
    """What is needed of the reader of the whole file."""

    def wrong(self, node: yaml.Node | None, text: str) -> None: ...

    def scalar(
        self, keys: dict[str, yaml.Node], key: str, where: str, parse: Parse, default: Any
    ) -> Any: ...


def read_masters(
    reader: Reader, keys: dict[str, yaml.Node], names: list[str]
) -> tuple[str, tuple[str, ...], float]:
    """Return who leads first, the hosts that can lead (none: that one alone), and the lease."""
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
    return master, masters if len(masters) > 1 else (), lease_s


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
