"""Every key of cluster.yaml and every `cluster` command is in the guide."""

from __future__ import annotations

import argparse
from pathlib import Path

from mrstream.cluster.config import gateway_reader
from mrstream.cluster.config import reader as config_reader
from mrstream.cluster.config import values as config_values
from mrstream.cluster.hosts import arguments

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "cluster.md").read_text(encoding="utf-8")


def test_every_key_of_the_cluster_file_is_documented() -> None:
    """Guide, table of keys: what is not there does not exist for a user."""
    keys = [f"`dfs.{key}`" for key in config_values.DFS_KEYS]
    keys += [
        f"`{key}`" for key in config_reader._CLUSTER_KEYS if key not in ("ports", "hosts", "dfs")
    ]
    keys += [
        "`ports.base`",
        "`hosts.H.address`",
        "`hosts.H.via`",
        "`hosts.H.dir`",
        "`hosts.H.disks`",
        "`dfs.cells`",
        "`dfs.cells.C.path`",
        "`dfs.cells.C.number`",
    ]

    assert [key for key in keys if key not in GUIDE] == []


def test_every_key_of_a_gateway_is_documented() -> None:
    doors = (Path(__file__).parents[2] / "docs" / "guide" / "doors.md").read_text(encoding="utf-8")
    settings = doors.partition("## Settings")[2].partition("\n## ")[0]

    assert [key for key in gateway_reader.GATEWAY_KEYS if f"`{key}`" not in settings] == []


def test_every_command_is_documented() -> None:
    parser = arguments.parser()
    commands = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )

    assert [name for name in commands.choices if f"`{name}" not in GUIDE] == []
