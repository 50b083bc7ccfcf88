"""`dfs.cells` in cluster.yaml: what it means, and what is refused."""

from __future__ import annotations

import pytest

from mrstream.cluster.agent.processes import module_of, words_of
from mrstream.cluster.config.config import (
    DFS_MASTER,
    GROUP,
    LOCK_MASTER,
    ClusterConfig,
    group_name,
)
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import BadConfig, UserError
from mrstream.cluster.hosts.down import unmounted
from mrstream.cluster.hosts.launcher import HostLink


def config(cells: str = "", more: str = "") -> ClusterConfig:
    given = f"dfs: {{cells: {cells}}}\n" if cells else ""
    hosts = "h1: {address: 10.0.0.1}, h2: {address: 10.0.0.2}, h3: {address: 10.0.0.3}"
    return read_config(f"name: demo\nhosts: {{{hosts}}}\n{given}{more}")


def mistakes(cells: str, more: str = "") -> str:
    with pytest.raises(BadConfig) as caught:
        config(cells, more)
    return str(caught.value)


def test_a_cell_is_one_more_dfs_master_on_the_hosts_of_masters() -> None:
    found = config("{logs: {path: /logs}, tmp: {path: /tmp/}}")
    assert [(cell.name, cell.path, cell.number) for cell in found.dfs.cells] == [
        ("logs", "/logs", 1),
        ("tmp", "/tmp", 2),
    ]
    assert found.dfs_masters == ("dfs.master", "dfs.master@logs", "dfs.master@tmp")
    assert found.masters_of("dfs.master@tmp") == ("h1", "h2", "h3")
    assert found.roles_of("h2")[:4] == (*found.dfs_masters, "dfs.chunkserver")
    assert group_name("dfs.master@logs") == "dfs@logs"


def test_every_cell_has_two_ports_of_its_own() -> None:
    found = config("{a: {path: /a}, b: {path: /b, number: 8}}")
    at = {role: found.port(role) - found.base_port for role in found.dfs_masters}
    assert at == {"dfs.master": 0, "dfs.master@a": 10, "dfs.master@b": 24}
    assert found.port("dfs.master@b" + GROUP) - found.base_port == 25
    taken = [port - found.base_port for port in found.ports_of(found.roles_of("h1"))]
    assert {0, 6, 10, 11, 24, 25} <= set(taken) and len(taken) == len(set(taken))
    assert found.ports_of(["dfs.master@a"]) == [found.base_port + 10, found.base_port + 11]


def test_the_file_that_hosts_get_says_the_numbers() -> None:
    found = config("{b: {path: /b, number: 1}, a: {path: /a}}")
    assert [cell.number for cell in found.dfs.cells] == [1, 2]
    again = read_config(write_config(found))
    assert again.dfs.cells == found.dfs.cells


def test_without_cells_nothing_is_other_than_it_was() -> None:
    found = config()
    assert "cells" not in write_config(found)
    assert found.dfs_masters == (DFS_MASTER,)
    assert found.mounts_known_to(DFS_MASTER) == {}
    assert words_of(DFS_MASTER) == ["-P", "-m", "mrstream.dfs.master"]


def test_whoever_goes_by_the_table_is_started_anew_when_it_changes() -> None:
    before, after = config("{logs: {path: /logs}}"), config("{logs: {path: /logs, number: 2}}")
    for role in ("dfs.master", "dfs.chunkserver", "mapreduce.worker", "web.gateway"):
        assert before.mounts_known_to(role) != after.mounts_known_to(role)
    assert before.mounts_known_to(LOCK_MASTER) == {}


def test_a_process_of_a_cell_is_known_by_its_words() -> None:
    assert module_of("dfs.master@logs") == "mrstream.dfs.master"
    assert words_of("dfs.master@logs") == ["-P", "-m", "mrstream.dfs.master", "--cell", "logs"]


def test_a_cell_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="has no cell 'loggs'; its cells are logs"):
        config("{logs: {path: /logs}}").cell("dfs.master@loggs")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("{logs: {}}", "dfs.cells.logs.path is missing: where it is mounted, such as /logs"),
        ("{logs: {path: logs}}", "a cell is mounted directly below the root, such as /logs"),
        ("{logs: {path: /}}", "dfs.cells.logs.path is '/': a cell is mounted directly below"),
        ("{logs: {path: /data/logs}}", "'/data/logs': a cell is mounted directly below the root"),
        ("{logs: {path: /.mrstream}}", "names that begin with a dot are the file system's own"),
        (
            '{logs: {path: "/lo\\egs"}}',
            "'/lo\\x1bgs': a name that everybody will type has no control",
        ),
        (f"{{logs: {{path: /{'x' * 256}}}}}", "a name has at most 255 bytes"),
        ("{a: {path: /x}, b: {path: /x}}", "cells a and b are both mounted at /x"),
        ("{a: {path: /a, number: 3}, b: {path: /b, number: 3}}", "a and b both have number 3"),
        ("{a: {path: /a, number: 9}}", "it must be a whole number from 1 to 8"),
        ("{a.b: {path: /a}}", "cell 'a.b': a cell's name has letters, digits, dashes"),
        ("{a: {paht: /a}}", "unknown key 'paht' in dfs.cells.a; did you mean 'path'?"),
        ("[logs]", "dfs.cells must be a mapping"),
        (
            "{" + ", ".join(f"c{n}: {{path: /c{n}}}" for n in range(9)) + "}",
            "dfs.cells names 9 cells; at most 8",
        ),
    ],
)
def test_cells_that_cannot_be_are_refused_in_words(cells: str, words: str) -> None:
    assert words in mistakes(cells)


def test_ports_for_cells_have_to_be_there() -> None:
    said = mistakes("{a: {path: /a}}", "ports: {base: 65520}")
    assert "a cluster with cells needs 40 ports" in said


def test_masters_of_cells_that_are_named_no_more_are_found_where_they_run() -> None:
    link = HostLink(config("{logs: {path: /logs}}"), config().hosts[0])
    link.facts = {"running": {"dfs.master": {}, "dfs.master@logs": {}, "dfs.master@old": {}}}
    assert unmounted(link, ["dfs.master", "dfs.chunkserver"]) == ["dfs.master@old"]
    assert unmounted(link, ["web.gateway"]) == []
