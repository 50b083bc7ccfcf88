"""cluster.yaml → `ClusterConfig`: every mistake at once, with line, value and nearest right key.

Works on YAML nodes rather than on loaded values, since only nodes know their lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from mrstream.cluster.config import extras
from mrstream.cluster.config.cells_reader import check_ports, read_cells
from mrstream.cluster.config.config import (
    VIA_LOCAL,
    VIA_SSH,
    WIDE_PORTS_COUNT,
    BackupConfig,
    ClusterConfig,
    DfsConfig,
    HostConfig,
    LockConfig,
)
from mrstream.cluster.config.gateway_reader import check_port, read_gateway
from mrstream.cluster.config.masters_reader import read_masters
from mrstream.cluster.config.values import (
    BACKUP_KEYS,
    DFS_KEYS,
    LOCK_KEYS,
    NAME,
    NAME_RULE,
    Parse,
    close_to,
    one_of,
    parse_address,
    parse_base_port,
    parse_bool,
    parse_name,
    parse_path,
    whole,
)
from mrstream.cluster.errors import BadConfig
from mrstream.cluster.units import expand_range

_PROPERTY = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_CLUSTER_KEYS: tuple[str, ...] = (
    "name",
    "master",
    "masters",
    "learner",
    "failover_after",
    "install",
    "extras",
    "python",
    "tls",
    "ports",
    "defaults",
    "hosts",
    "dfs",
    "mapreduce",
    "gateway",
    "lock",
    "engine",
    "guard",
    "backup",
)
INSTALLS = ("wheel", "wheelhouse", "none")
DEPTH_MAX = 32
"""Of lists and mappings within one another; a cluster file has four."""


def read_config(text: str, path: str = "cluster.yaml") -> ClusterConfig:
    """Return the configuration, or raise one `BadConfig` with a line for every mistake."""
    try:
        _check_depth(text, path)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        problem = getattr(error, "problem", None) or str(error)
        if mark and _is_indented_by_tab(text, mark.line):
            problem = "a tab indents this line: use spaces"
        raise BadConfig(f"{where}: this is not YAML: {problem}") from None
    reader = _Reader(path)
    config = reader.cluster(root)
    if reader.mistakes or config is None:
        raise BadConfig("\n".join(text for _, text in sorted(reader.mistakes)))
    return config


def _check_depth(text: str, path: str) -> None:
    """Refuse what is nested too deep, by events, which need no stack: `compose` is C that calls
    itself for every level without counting, and a file of 100 KB would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                line = event.start_mark.line + 1 if event.start_mark is not None else 1
                raise BadConfig(f"{path}:{line}: nested deeper than {DEPTH_MAX} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Reader:
    """Collects mistakes while it builds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.mistakes: list[tuple[int, str]] = []

    def wrong(self, node: yaml.Node | None, text: str) -> None:
        line = node.start_mark.line + 1 if node is not None else 1
        self.mistakes.append((line, f"{self.path}:{line}: {text}"))

    # --- the parts of the file

    def cluster(self, root: yaml.Node | None) -> ClusterConfig | None:
        keys = self.mapping(root, "", _CLUSTER_KEYS)
        name = self.scalar(keys, "name", "", parse_name, None)
        defaults = self.host_fields(keys.get("defaults"), "defaults", is_default=True)
        hosts = self.hosts(keys.get("hosts"), defaults)
        if "name" not in keys:
            self.wrong(root, "name is missing: a cluster needs a name, such as `name: demo`")
        if "hosts" not in keys:
            self.wrong(root, "hosts is missing: name at least one host, such as `hosts: {h1: {}}`")
        names = [host.name for host in hosts]
        master, masters, learner, failover_after_s = read_masters(self, keys, hosts)
        ports = self.mapping(keys.get("ports"), "ports", ("base",))
        base_port = self.scalar(ports, "base", "ports", parse_base_port, 7700)
        install = self.scalar(keys, "install", "", one_of(INSTALLS), "wheel")
        optional = self.extras(keys.get("extras"))
        python = self.scalar(keys, "python", "", str, None)
        tls = self.scalar(keys, "tls", "", parse_bool, False)
        dfs = self.dfs(keys.get("dfs"))
        properties = self.properties(keys.get("mapreduce"))
        lock = self.lock(keys.get("lock"))
        if lock is not None and base_port > 65_535 - WIDE_PORTS_COUNT:
            self.wrong(
                ports.get("base"),
                f"ports.base is {base_port}: a cluster with a lock cell needs {WIDE_PORTS_COUNT} "
                f"ports from it on, so at most {65_535 - WIDE_PORTS_COUNT}",
            )
        if dfs.cells:
            check_ports(self, ports.get("base"), base_port)
        self.check_addresses(hosts, keys.get("hosts"))
        engine = self.scalar(keys, "engine", "", str, "")
        gateway = read_gateway(self, keys.get("gateway"), names, base_port)
        guard = self.scalar(keys, "guard", "", parse_bool, True)
        backup = self.backup(keys.get("backup"), guard)
        if self.mistakes:
            return None
        config = ClusterConfig(
            name,
            master,
            tuple(hosts),
            install,
            python,
            tls,
            base_port,
            dfs,
            properties,
            self.path,
            optional,
            gateway,
            lock,
            masters,
            learner,
            failover_after_s,
            engine,
            guard,
            backup,
        )
        if gateway is not None:
            check_port(self, keys.get("gateway"), gateway, config)
        return config

    def extras(self, node: yaml.Node | None) -> tuple[str, ...]:
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, f"extras must be a list, such as [records, saw], not {_shown(node)}")
            return ()
        names: list[str] = []
        for item in node.value:
            if not isinstance(item, yaml.ScalarNode):
                self.wrong(item, f"extras: a name is a single word, not {_shown(item)}")
            elif item.value in names:
                self.wrong(item, f"extras names {item.value} twice")
            else:
                try:
                    extras.known([item.value])
                    names.append(item.value)
                except ValueError as error:
                    self.wrong(item, f"extras: {error}")
        return extras.known(names)

    def hosts(self, node: yaml.Node | None, defaults: dict[str, Any]) -> list[HostConfig]:
        hosts: list[HostConfig] = []
        seen: dict[str, yaml.Node] = {}
        for key, value in self.pairs(node, "hosts"):
            try:
                names = expand_range(key.value)
            except ValueError as error:
                self.wrong(key, f"host {key.value!r}: {error}")
                continue
            # As it is, unless it would break the line in which it is told of.
            shown = key.value if key.value.isprintable() else repr(key.value)
            fields = self.host_fields(value, f"hosts.{shown}", is_default=False)
            for index, name in enumerate(names):
                if not NAME.fullmatch(name):
                    self.wrong(key, f"host {name!r}: {NAME_RULE}")
                elif name in seen:
                    self.wrong(key, f"host {name!r} is there twice")
                else:
                    seen[name] = key
                    hosts.append(self.host(name, index, len(names), {**defaults, **fields}, key))
        if node is not None and not seen and not _has_content(node):
            self.wrong(node, "hosts is empty: name at least one host")
        return hosts

    def host(
        self, name: str, index: int, count: int, fields: dict[str, Any], node: yaml.Node
    ) -> HostConfig:
        spread = {key: self.spread(value, index, count, node) for key, value in fields.items()}
        via = spread.get("via", VIA_SSH)
        address = spread.pop("address", "127.0.0.1" if via == VIA_LOCAL else name)
        return HostConfig(name=name, address=address, **spread)

    def spread(self, value: Any, index: int, count: int, node: yaml.Node) -> Any:
        """Return what is the n-th host's of a value: a range in it gives its n-th."""
        if isinstance(value, tuple):
            return tuple(self.spread(item, index, count, node) for item in value)
        if not isinstance(value, str) or "[" not in value:
            return value
        try:
            values = expand_range(value)
        except ValueError as error:
            self.wrong(node, str(error))
            return value
        if len(values) == 1:
            return value
        if len(values) != count:
            self.wrong(
                node, f"{value!r} stands for {len(values)} values, the range of hosts for {count}"
            )
            return value
        return values[index]

    def host_fields(self, node: yaml.Node | None, where: str, is_default: bool) -> dict[str, Any]:
        parsers: dict[str, Parse] = {
            "user": str,
            "key": str,
            "dir": parse_path,
            "slots": whole(1, 10_000),
            "via": one_of((VIA_SSH, VIA_LOCAL)),
            "port": whole(1, 65_535),
            "rack": str,
            "python": str,
        }
        if not is_default:
            parsers["address"] = parse_address
        keys = self.mapping(node, where, (*parsers, "disks"))
        fields: dict[str, Any] = {}
        for key, parse in parsers.items():
            if key in keys:
                fields[key] = self.scalar(keys, key, where, parse, None)
        if "disks" in keys:
            fields["disks"] = self.paths(keys["disks"], f"{where}.disks")
        return fields

    def dfs(self, node: yaml.Node | None) -> DfsConfig:
        keys = self.mapping(node, "dfs", (*DFS_KEYS, "cells"))
        fields: dict[str, Any] = {}
        for key, (field, parse) in DFS_KEYS.items():
            if key not in keys:
                continue
            value = self.scalar(keys, key, "dfs", parse, None)
            if key == "reserve" and isinstance(value, int):
                fields["reserve_bytes"], fields["reserve_share"] = value, 0.0
            elif value is not None:
                fields[field] = value
        config = DfsConfig(**fields, cells=read_cells(self, keys.get("cells")))
        if config.dead_after_s < 3 * config.heartbeat_s:
            self.wrong(
                keys.get("dead_after") or keys.get("heartbeat"),
                f"dfs.dead_after is {config.dead_after_s:g}s, dfs.heartbeat "
                f"{config.heartbeat_s:g}s: a host may miss two heartbeats before it is dead",
            )
        return config

    def lock(self, node: yaml.Node | None) -> LockConfig | None:
        """Where the key stands, as `lock: {}`, there is a cell."""
        if node is None:
            return None
        keys = self.mapping(node, "lock", tuple(LOCK_KEYS))
        fields = {
            field: value
            for key, (field, parse) in LOCK_KEYS.items()
            if (value := self.scalar(keys, key, "lock", parse, None)) is not None
        }
        return LockConfig(**fields)

    def backup(self, node: yaml.Node | None, has_guard: bool) -> BackupConfig | None:
        """Guards do it, in their own time."""
        if node is None:
            return None
        keys = self.mapping(node, "backup", tuple(BACKUP_KEYS))
        fields = {
            field: value
            for key, (field, parse) in BACKUP_KEYS.items()
            if (value := self.scalar(keys, key, "backup", parse, None)) is not None
        }
        if "to" not in keys:
            self.wrong(node, "backup.to is missing: a directory on the hosts of masters")
        if not has_guard:
            self.wrong(node, "backup needs the guards, which `guard: false` does without")
        return BackupConfig(**fields) if "to" in fields else None

    def properties(self, node: yaml.Node | None) -> dict[str, str]:
        properties: dict[str, str] = {}
        for key, value in self.pairs(node, "mapreduce"):
            if not _PROPERTY.fullmatch(key.value):
                self.wrong(key, f"mapreduce: {key.value!r} is not a property name")
            elif not isinstance(value, yaml.ScalarNode):
                self.wrong(value, f"mapreduce.{key.value} must be a single value")
            else:
                properties[key.value] = value.value
        return properties

    def check_addresses(self, hosts: list[HostConfig], node: yaml.Node | None) -> None:
        by_address: dict[str, str] = {}
        for host in hosts:
            other = by_address.setdefault(host.address, host.name)
            if other != host.name:
                self.wrong(
                    node,
                    f"hosts {other} and {host.name} have the same address {host.address}: each "
                    "listens on its own (127.0.0.2, 127.0.0.3 … for local ones)",
                )

    # --- nodes

    def pairs(self, node: yaml.Node | None, where: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        if node is None or _is_null(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            what = where or "the file"
            self.wrong(node, f"{what} must be a mapping (key: value), not {_shown(node)}")
            return []
        pairs: list[tuple[yaml.ScalarNode, yaml.Node]] = []
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                pairs.append((key, value))
            else:
                self.wrong(key, f"{where}: a key must be a plain word")
        return pairs

    def mapping(
        self, node: yaml.Node | None, where: str, known: tuple[str, ...]
    ) -> dict[str, yaml.Node]:
        keys: dict[str, yaml.Node] = {}
        seen: set[str] = set()
        for key, value in self.pairs(node, where):
            place = f" in {where}" if where else ""
            if key.value not in known:
                self.wrong(key, f"unknown key {key.value!r}{place}; {_nearest(key.value, known)}")
                # What stands under a misspelt key is looked at too, and its right name is there.
                for meant in close_to(key.value, known):
                    keys.setdefault(meant, value)
            elif key.value in seen:
                self.wrong(key, f"key {key.value!r}{place} is there twice")
            else:
                seen.add(key.value)
                keys[key.value] = value
        return {key: value for key, value in keys.items() if not _is_null(value)}

    def scalar(
        self, keys: dict[str, yaml.Node], key: str, where: str, parse: Parse, default: Any
    ) -> Any:
        node = keys.get(key)
        if node is None:
            return default
        full = ".".join(word for word in (where, key) if word)
        if not isinstance(node, yaml.ScalarNode):
            self.wrong(node, f"{full} must be a single value, not {_shown(node)}")
            return default
        try:
            return parse(node.value)
        except ValueError as error:
            self.wrong(node, f"{full} is {node.value!r}: {error}")
            return default

    def paths(self, node: yaml.Node, where: str) -> tuple[str, ...]:
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        paths: list[str] = []
        for item in items:
            value = self.scalar({"": item}, "", where, parse_path, None)
            if value is not None:
                paths.append(value)
        if len(set(paths)) != len(paths):
            self.wrong(node, f"{where} names a disk twice")
        return tuple(paths)


# --- words


def _nearest(word: str, known: Sequence[str]) -> str:
    close = close_to(word, known)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"


def _is_indented_by_tab(text: str, line_index: int) -> bool:
    line = "".join(text.split("\n")[line_index : line_index + 1])
    return "\t" in line[: len(line) - len(line.lstrip())]


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _has_content(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode | yaml.SequenceNode) and bool(node.value)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
