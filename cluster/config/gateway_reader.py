"""The `gateway:` part of cluster.yaml → `GatewayConfig`, every mistake told with its line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

import yaml

from mrstream.cluster.config.config import (
    GATEWAY_HTTP,
    GATEWAY_S3,
    PORT_OFFSETS,
    ClusterConfig,
    GatewayConfig,
)
from mrstream.cluster.config.values import (
    Parse,
    Reader,
    parse_bool,
    parse_path,
    suggestion,
    whole,
)
from mrstream.cluster.units import parse_size

MEMORY_BYTES_MIN = 64 << 20
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.IGNORECASE)


def parse_network(text: str) -> str:
    """Return a network of addresses, such as 10.0.0.0/8."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError("a network is an address and a prefix, such as 10.0.0.0/8") from None


def parse_ip(text: str) -> str:
    """Return an IP address that can be told from others."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        raise ValueError("it must be an IP address") from None
    if address.is_unspecified:
        raise ValueError("nothing listens on all addresses: name one of the host's own")
    return str(address)


def parse_host_name(text: str) -> str:
    """Return a name as browsers use it."""
    if not _NAME.fullmatch(text):
        raise ValueError("a name has letters, digits, dots and dashes, without a port")
    return text.lower()


def parse_root(text: str) -> str:
    """Return a directory of the dfs, in one spelling."""
    names = text.split("/")[1:]
    if not text.startswith("/") or "\0" in text or {".", ".."} & set(names):
        raise ValueError("it must be a directory of the dfs, such as /buckets")
    if any(name.startswith((".trash", ".mrstream")) for name in names):
        raise ValueError("it must not be one of the file system's own directories")
    return "/" + "/".join(name for name in names if name)


def parse_memory(text: str) -> int:
    """Return a number of bytes with which a gateway can work."""
    size = parse_size(text)
    if size < MEMORY_BYTES_MIN:
        raise ValueError("it must be 64MiB at least: a few streams at a time")
    return size


SCALARS: dict[str, tuple[str, Parse]] = {
    "webhdfs": ("webhdfs", parse_bool),
    "s3": ("s3", parse_bool),
    "pages": ("pages", parse_bool),
    "metrics": ("metrics", parse_bool),
    "port": ("port", whole(1024, 65_534)),
    "trusted_writes": ("trusted_writes", parse_bool),
    "read_only": ("read_only", parse_bool),
    "memory": ("memory_bytes", parse_memory),
    "connections": ("connections", whole(1, 100_000)),
    "s3_root": ("s3_root", parse_root),
    "s3_virtual_host": ("s3_virtual_host", parse_host_name),
}
LISTS: dict[str, Parse] = {
    "trusted": parse_network,
    "names": parse_host_name,
    "behind": parse_ip,
}
GATEWAY_KEYS = ("hosts", *SCALARS, *LISTS, "address", "tls")


def read_gateway(
    reader: Reader, node: yaml.Node | None, hosts: Sequence[str], base_port: int
) -> GatewayConfig | None:
    """Return that part of a cluster file; None if there is none."""
    if node is None:
        return None
    keys = reader.mapping(node, "gateway", GATEWAY_KEYS)
    fields: dict[str, Any] = {"hosts": _hosts(reader, node, keys, hosts)}
    for key, (name, parse) in SCALARS.items():
        value = reader.scalar(keys, key, "gateway", parse, None)
        if value is not None:
            fields[name] = value
    for key, parse in LISTS.items():
        if key in keys:
            fields[key] = _list(reader, keys[key], f"gateway.{key}", parse)
    if "address" in keys:
        fields["addresses"] = _addresses(reader, keys["address"], fields["hosts"])
    fields.update(_tls(reader, keys))
    if base_port + max(PORT_OFFSETS.values()) > 65_535:
        reader.wrong(
            node, f"ports.base is {base_port}: a gateway uses ports up to base + 31, below 65536"
        )
    return GatewayConfig(**fields)


def check_port(
    reader: Reader, node: yaml.Node | None, gateway: GatewayConfig, config: ClusterConfig
) -> None:
    """See that a port of the gateway's own is no other role's."""
    roles = {role for host in config.hosts for role in config.roles_of(host.name)}
    own = (GATEWAY_HTTP, GATEWAY_S3)
    others = {config.port(name): name for name in config.listeners_of(roles) if name not in own}
    for port in (gateway.port, gateway.port + 1) if gateway.port else ():
        if port in others:
            reader.wrong(
                node,
                f"gateway.port is {gateway.port}: it and the next one are the gateway's, and "
                f"{port} is that of {others[port]}; choose two that lie elsewhere",
            )


def _hosts(
    reader: Reader, node: yaml.Node, keys: dict[str, yaml.Node], known: Sequence[str]
) -> tuple[str, ...]:
    if "hosts" not in keys:
        reader.wrong(node, "gateway.hosts is missing: name the hosts where it runs")
        return ()
    names = _list(reader, keys["hosts"], "gateway.hosts", str)
    for name in names:
        if name not in known:
            reader.wrong(
                keys["hosts"],
                f"gateway.hosts names {name!r}, which is not a host{suggestion(name, known)}",
            )
    return names


def _list(reader: Reader, node: yaml.Node, where: str, parse: Parse) -> tuple[Any, ...]:
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    values: list[Any] = []
    for item in items:
        value = reader.scalar({"": item}, "", where, parse, None)
        if value is not None and value in values:
            reader.wrong(item, f"{where} names {value} twice")
        elif value is not None:
            values.append(value)
    return tuple(values)


def _addresses(reader: Reader, node: yaml.Node, hosts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for host, item in reader.mapping(node, "gateway.address", hosts).items():
        address = reader.scalar({host: item}, host, "gateway.address", parse_ip, None)
        if address is not None:
            found[host] = address
    return found


def _tls(reader: Reader, keys: dict[str, yaml.Node]) -> dict[str, Any]:
    node = keys.get("tls")
    if node is None or isinstance(node, yaml.ScalarNode):
        return {"tls": reader.scalar(keys, "tls", "gateway", parse_bool, True)}
    files = reader.mapping(node, "gateway.tls", ("certificate", "key"))
    found = {
        key: reader.scalar(files, key, "gateway.tls", parse_path, "")
        for key in ("certificate", "key")
    }
    if not all(found.values()):
        reader.wrong(node, "gateway.tls is true, false, or {certificate: FILE, key: FILE}")
    return {"tls": True, **found}
