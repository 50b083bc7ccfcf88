"""`gateway:` in cluster.yaml: read, checked, written, and what follows from it."""

from __future__ import annotations

import pytest

from mrstream.cluster.config.config import GATEWAY, GATEWAY_HTTP, GATEWAY_S3, WORKER
from mrstream.cluster.config.doors import names_of, with_door_keys
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import BadConfig, UserError

BASE = "name: x\nhosts: {h1: {address: 10.0.0.1}, h2: {address: 10.0.0.2}}\n"
FULL = f"""\
{BASE}extras: [saw]
gateway:
  hosts: [h2]
  port: 8443
  pages: false
  address: {{h2: 192.0.2.7}}
  tls: {{certificate: /etc/c.pem, key: /etc/k.pem}}
  trusted: [10.0.0.0/8, 192.168.1.0/24]
  trusted_writes: true
  names: [Files.lab.example]
  behind: 10.0.0.5
  read_only: true
  memory: 256MiB
  connections: 100
  s3_root: //buckets/of/all/
  s3_virtual_host: S3.lab.example
"""


def test_without_it_there_is_no_gateway_anywhere() -> None:
    config = read_config(BASE)

    assert config.gateway is None
    assert GATEWAY not in config.roles_of("h1")
    assert "gateway" not in write_config(config)


def test_every_key_is_read_and_written() -> None:
    config = read_config(FULL)
    gateway = config.gateway

    assert gateway is not None
    assert (gateway.hosts, gateway.port, gateway.pages, gateway.webhdfs) == (
        ("h2",), 8443, False, True,
    )  # fmt: skip
    assert (gateway.tls, gateway.certificate, gateway.key) == (True, "/etc/c.pem", "/etc/k.pem")
    assert gateway.trusted == ("10.0.0.0/8", "192.168.1.0/24")
    assert (gateway.names, gateway.behind) == (("files.lab.example",), ("10.0.0.5",))
    assert (gateway.memory_bytes, gateway.connections) == (256 << 20, 100)
    assert (gateway.s3, gateway.s3_root, gateway.s3_virtual_host) == (
        True, "/buckets/of/all", "s3.lab.example",
    )  # fmt: skip
    assert read_config(write_config(config)).gateway == gateway


def test_it_runs_last_where_it_is_named_and_brings_its_libraries() -> None:
    config = read_config(f"{BASE}extras: [saw]\ngateway: {{hosts: [h2]}}\n")

    assert config.roles_of("h2")[-2:] == (WORKER, GATEWAY)
    assert GATEWAY not in config.roles_of("h1")
    assert config.extras_of("h1") == ("saw",)
    assert config.extras_of("h2") == ("http", "saw")
    assert config.port(GATEWAY) == 7728 and config.port(GATEWAY_HTTP) == 7730
    assert config.port(GATEWAY_S3) == 7731
    assert read_config(FULL).port(GATEWAY_HTTP) == 8443
    assert read_config(FULL).port(GATEWAY_S3) == 8444


def test_a_host_that_leaves_takes_its_gateway_along() -> None:
    config = read_config(FULL)

    assert config.without("h1").gateway == config.gateway
    assert config.without("h2").gateway is None
    assert read_config(write_config(config.without("h2"))).gateway is None


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("{}", "gateway.hosts is missing"),
        ("{hosts: [h3]}", "'h3', which is not a host"),
        ("{hosts: [h1, h1]}", "h1 twice"),
        ("{hosts: [h1], s3x: true}", "unknown key 's3x' in gateway"),
        ("{hosts: [h1], address: {h1: 0.0.0.0}}", "nothing listens on all addresses"),
        ("{hosts: [h1], address: {h1: '::'}}", "nothing listens on all addresses"),
        ("{hosts: [h1], address: {h2: 10.0.0.9}}", "unknown key 'h2'"),
        ("{hosts: [h1], trusted: [10.0.0.0/99]}", "such as 10.0.0.0/8"),
        ("{hosts: [h1], names: ['a:1']}", "without a port"),
        ("{hosts: [h1], behind: [lb]}", "must be an IP address"),
        ("{hosts: [h1], memory: 1MiB}", "64MiB at least"),
        ("{hosts: [h1], tls: {certificate: /a}}", "{certificate: FILE, key: FILE}"),
        ("{hosts: [h1], tls: maybe}", "it is true or false"),
        ("{hosts: [h1], port: 80}", "from 1,024"),
        ("{hosts: [h1], port: 7703}", "7703 is that of mapreduce.master; choose two"),
        ("{hosts: [h1], port: 7699}", "7700 is that of dfs.master; choose two"),
        ("{hosts: [h1], s3_root: data}", "such as /buckets"),
        ("{hosts: [h1], s3_root: /a/../b}", "such as /buckets"),
        ("{hosts: [h1], s3_root: /.trash}", "file system's own"),
    ],
)
def test_a_mistake_is_told_with_its_line(part: str, said: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_config(f"{BASE}gateway: {part}\n")

    assert said in str(caught.value)
    assert str(caught.value).startswith("cluster.yaml:3: ")


def test_the_last_port_must_exist() -> None:
    with pytest.raises(BadConfig, match=r"base \+ 31"):
        read_config(f"{BASE}ports: {{base: 65520}}\ngateway: {{hosts: [h1]}}\n")


def test_its_port_may_be_that_of_a_role_that_the_cluster_does_not_have() -> None:
    lock_port, cell_port = 7726, 7710
    for port, more in ((lock_port, "lock: {}\n"), (cell_port, "dfs: {cells: {a: {path: /a}}}\n")):
        given = f"{BASE}gateway: {{hosts: [h1], port: {port}}}\n"

        assert read_config(given).port(GATEWAY_HTTP) == port
        with pytest.raises(BadConfig, match=f"cluster.yaml:3: .* {port} is that of"):
            read_config(f"{given}{more}")


def test_the_identity_keeps_the_authority_and_only_grows_names() -> None:
    config = read_config(FULL)
    first = with_door_keys(Secret.new(), config)
    again = with_door_keys(first, config)
    fewer = with_door_keys(first, config.without("h1"))
    wider = with_door_keys(
        first, read_config(FULL.replace("[Files.lab.example]", "[files.lab.example, b.example]"))
    )

    assert first.door is not None and wider.door is not None
    assert again == first == fewer
    assert wider.door.authority != first.door.authority
    assert (wider.door.key, wider.door.secret) == (first.door.key, first.door.secret)
    assert Secret.from_text(first.to_text(), "here") == first
    assert first.door.secret.hex() not in repr(first)
    assert names_of(config, "h2") == (
        "h2",
        "10.0.0.2",
        "192.0.2.7",
        "files.lab.example",
        "s3.lab.example",
    )


def test_an_identity_with_half_a_door_is_refused() -> None:
    text = Secret.new().to_text().replace("}", ', "door": ["a"]}')

    with pytest.raises(UserError):
        Secret.from_text(text, "here")
