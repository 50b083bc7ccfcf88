"""`mrstream key …`: keys to the doors of a cluster, made and revoked by whoever has its secret.

A root: it may use what it needs of the other packages.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable

from mrstream.cluster.config.config import GATEWAY_S3, Cluster, current_cluster
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.units import parse_time
from mrstream.cluster.wire.addresses import join_address
from mrstream.dfs.client.client import DfsClient, client_of
from mrstream.dfs.metadata.paths import join_path, split_path
from mrstream.dfs.protocol import DoorKey, KeysSince, KeyTable, MakeKey, RevokeKey
from mrstream.web.http.access import USER_NAME
from mrstream.web.http.tokens import key_secret, new_key_id

NAME = re.compile(r"[a-z0-9-]{1,32}")
_EXIT = "exit status: 0 done; 1 not done, and why is said; 2 wrong words"


def main(argv: list[str]) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(argv)
    cluster = current_cluster(options.cluster)
    if cluster is None:
        raise UserError("which cluster? There is no current one: use -cluster FILE")
    command: Callable[[Cluster, DfsClient, argparse.Namespace], int] = options.run
    try:
        with client_of(cluster) as client:
            return command(cluster, client, options)
    except ClusterError as error:
        print(f"mrstream key: {error}", file=sys.stderr)
        return error.exit_status


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="mrstream key",
        description="Keys with which other programs come in through a cluster's gateway.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"""\
examples:
  mrstream key add etl --path /data --expires 90d
  mrstream key add reports --user ann --path /data/out --read-only
  mrstream key list
  mrstream key revoke etl              in force two seconds later, everywhere

A secret is kept nowhere: it follows from the key's id and the cluster's own secret.
The guide: docs/guide/doors.md
{_EXIT}""",
    )
    made.add_argument("-cluster", metavar="FILE", help="a cluster file or name (default: current)")
    commands = made.add_subparsers(required=True, metavar="COMMAND", dest="command")
    add = commands.add_parser("add", help="make a key, and print its id and secret")
    add.add_argument("name", metavar="NAME", help="a-z, 0-9 and dashes, 32 at most")
    add.add_argument("--user", help="who owns what is made with it (default: you)")
    add.add_argument(
        "--path", action="append", default=[], help="where it is good, with all below (default: /)"
    )
    add.add_argument("--read-only", action="store_true", help="it may look and change nothing")
    add.add_argument("--expires", metavar="TIME", help="such as 90d (default: never)")
    add.set_defaults(run=_add)
    commands.add_parser("list", help="show all keys").set_defaults(run=_list)
    for name, run, words in (
        ("revoke", _revoke, "make a key void"),
        ("show", _show, "print a key's secret again"),
    ):
        command = commands.add_parser(name, help=words)
        command.add_argument("key", metavar="NAME|ID")
        command.set_defaults(run=run)
    return made


def _door_secret(cluster: Cluster) -> bytes:
    if cluster.secret.door is None:
        raise UserError(
            "this cluster has no gateway: name its hosts in cluster.yaml (`gateway: {hosts: "
            "[h1]}`), then `mrstream cluster up`"
        )
    return cluster.secret.door.secret


def _add(cluster: Cluster, client: DfsClient, options: argparse.Namespace) -> int:
    secret = _door_secret(cluster)
    if not NAME.fullmatch(options.name):
        raise UserError(f"name {options.name[:40]!r}: a-z, 0-9 and dashes, 32 at most")
    user = options.user or client.user
    if not USER_NAME.fullmatch(user):
        raise UserError(f"--user {user[:40]!r} is not the name of a user")
    paths = tuple(join_path(split_path(path)) for path in options.path) or ("/",)
    expires_at_s = 0.0
    if options.expires:
        try:
            expires_at_s = time.time() + parse_time(options.expires)
        except ValueError as error:
            raise UserError(f"--expires {options.expires!r}: {error}") from None
    id = new_key_id()
    rights = "r" if options.read_only else "rw"
    client.call(MakeKey(id, options.name, user, paths, rights, expires_at_s))
    print(f"id      {id}\nsecret  {key_secret(secret, id)}")
    _tell_profile(cluster, options.name, id, key_secret(secret, id))
    return 0


def _tell_profile(cluster: Cluster, name: str, id: str, secret: str) -> None:
    """Say how boto3 and awscli are told of it, beside what is printed for programs."""
    gateway = cluster.config.gateway
    if gateway is None or not gateway.s3:
        return
    address = cluster.config.host(gateway.hosts[0]).address
    place = join_address(address, cluster.config.port(GATEWAY_S3))
    lines = [
        f"[profile {name}]",
        f"aws_access_key_id = {id}",
        f"aws_secret_access_key = {secret}",
        f"endpoint_url = {'https' if gateway.tls else 'http'}://{place}",
        "region = any",
    ]
    if gateway.tls and not gateway.certificate:
        lines += ["# what `mrstream cluster ca` prints:", "ca_bundle = /PATH/ca.pem"]
    print("\nfor boto3 and awscli, in ~/.aws/config:", *lines, sep="\n", file=sys.stderr)


def _keys(client: DfsClient) -> tuple[DoorKey, ...]:
    table: KeyTable = client.call(KeysSince())
    return tuple(sorted(table.keys, key=lambda key: key.name))


def _list(cluster: Cluster, client: DfsClient, options: argparse.Namespace) -> int:
    rows = [("NAME", "ID", "USER", "RIGHTS", "MADE", "EXPIRES", "PATHS")]
    for key in _keys(client):
        expires = _day(key.expires_at_s) if key.expires_at_s else "never"
        rows.append(
            (
                key.name,
                key.id,
                key.user,
                key.rights,
                _day(key.made_at_s),
                "over" if 0 < key.expires_at_s <= time.time() else expires,
                " ".join(key.paths),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at_s))


def _revoke(cluster: Cluster, client: DfsClient, options: argparse.Namespace) -> int:
    client.call(RevokeKey(options.key))
    print(f"{options.key} is void; gateways know within two seconds")
    return 0


def _show(cluster: Cluster, client: DfsClient, options: argparse.Namespace) -> int:
    secret = _door_secret(cluster)
    for key in _keys(client):
        if options.key in (key.name, key.id):
            print(f"id      {key.id}\nsecret  {key_secret(secret, key.id)}")
            return 0
    raise UserError(f"there is no key {options.key!r}: `mrstream key list` shows all")
