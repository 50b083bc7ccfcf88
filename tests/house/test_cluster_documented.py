"""Every key of cluster.yaml and every `cluster` command is in the guide, with its true default."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import yaml

from mrstream.cluster.config import config as cluster_config
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


def test_the_defaults_that_the_guide_tells_are_those_of_the_code(tmp_path: Path) -> None:
    """GFS-02, GFS-04, GFS-33, GFS-66: chunks of 64 MiB, three replicas, 60 s, three days."""
    told: dict[str, dict[str, object]] = {"dfs": {}, "lock": {}, "backup": {"to": "/b"}}
    for row in re.findall(r"^\|( `(?:dfs|lock|backup)\..*)\|$", GUIDE, re.MULTILINE):
        keys, _, default = row.split("|")
        values = default.replace("`", "").split(", ")
        for name, value in zip(re.findall(r"`(\w+\.\w+)`", keys), values, strict=False):
            part, _, key = name.partition(".")
            if value.strip() not in ("", "none"):
                told[part][key] = yaml.safe_load(value)
    host = "{address: 10.0.0.1}"
    for name, parts in (("said", told), ("silent", {"lock": {}, "backup": {"to": "/b"}})):
        (tmp_path / name).write_text(f"name: c\nhosts: {{h1: {host}}}\n{yaml.safe_dump(parts)}")

    said, silent = (cluster_config.load(str(tmp_path / name)) for name in ("said", "silent"))

    assert len(told["dfs"]) == 10 and len(told["lock"]) == 2 and len(told["backup"]) == 3
    assert (said.dfs, said.lock, said.backup) == (silent.dfs, silent.lock, silent.backup)


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
