"""`mrstream dump`: the tables of Sawzall jobs, their shards merged, as CSV, JSON or text (§8)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mrstream.mapreduce.saw_cli import EXIT, HERE, Parser, chosen_cluster

_WRITE_LINES = 1000


def main(argv: Sequence[str]) -> int:
    """Do what the words ask for; give the exit status."""
    said = _parser().parse_args(argv)
    from mrstream.mapreduce.dataflow.files import RoutedFiles
    from mrstream.mapreduce.saw_dump import rows
    from mrstream.saw.report import LINES

    cluster = chosen_cluster(said.workqueue)
    files = RoutedFiles(f"dfs://{cluster.name}/" if cluster else "file:///", os.getcwd())
    held: list[str] = []
    for line in LINES[said.format](rows(said.source, files, said.table)):
        held.append(line)
        if len(held) == _WRITE_LINES:
            _write(held)
    _write(held)
    return 0


def _write(lines: list[str]) -> None:
    sys.stdout.buffer.write("".join(lines).encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
    lines.clear()


def _parser() -> Parser:
    made = Parser(
        prog="mrstream dump",
        allow_abbrev=False,
        description="Print the tables of Sawzall jobs: all shards, in the order of their indexes.",
        epilog=f"The guide: docs/guide/saw.md; {EXIT}",
    )
    made.add_argument(
        "--source",
        required=True,
        action="append",
        metavar="DIR@N",
        help="the --destination of a job; given again, results of equal tables are added up",
    )
    made.add_argument("--format", default="csv", choices=("csv", "json", "text"))
    made.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="only this table (default: all but _undef_details, where skipped statements stand)",
    )
    made.add_argument(
        "--workqueue", metavar="CLUSTER", help=f"whose dfs it is in ({HERE}: files of this machine)"
    )
    return made
