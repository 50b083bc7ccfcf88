"""`mrstream saw`: check a Sawzall program, and run it here or on a cluster (§8)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from mrstream.cluster.errors import UserError

if TYPE_CHECKING:
    from mrstream.cluster.config.config import ClusterConfig
    from mrstream.mapreduce.saw_job import SawRequest

HERE = "local"
EXIT = "exit status: 0 done; 1 refused or failed, and why is said; 130 interrupted"


class BadWords(UserError):
    """The words of a command line do not fit."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like any other."""

    def error(self, message: str) -> NoReturn:
        raise BadWords(f"{self.prog}: {message}\n{self.format_usage().strip()}")


def main(argv: Sequence[str]) -> int:
    """Do what the words ask for; give the exit status."""
    said = _parser().parse_args(argv)
    from mrstream.mapreduce import saw_job

    if said.check or said.print_python:
        program = saw_job.program_at(
            said.program, ignore_undefs=said.ignore_undefs, zone=said.timezone
        )
        if said.print_python:
            sys.stdout.write(program.python)
        else:
            print(f"{said.program}: no faults; {len(program.tables)} tables")
        return 0
    for option in ("input_files", "destination"):
        if not getattr(said, option):
            raise BadWords(f"mrstream saw: --{option} is missing; `mrstream saw --help` tells more")
    request = saw_job.SawRequest(
        program_path=said.program,
        input_files=tuple(said.input_files),
        destination=said.destination,
        ignore_undefs=said.ignore_undefs,
        zone=said.timezone,
        machines=said.machines,
        input_format=said.input_format,
        properties=tuple(map(_property, said.D)),
    )
    return _run(request, chosen_cluster(said.workqueue), background=said.background)


def chosen_cluster(named: str | None) -> ClusterConfig | None:
    """Return the cluster that was named, else the current one; None for this machine."""
    from mrstream.cluster.config import state

    return None if named == HERE else state.chosen_config(named)


def _run(request: SawRequest, cluster: ClusterConfig | None, *, background: bool) -> int:
    from mrstream.mapreduce import saw_job

    spec = saw_job.spec_of(request)
    if cluster is None:
        from mrstream.mapreduce.local import run as local

        status = local.run(spec, background=background)
    else:
        from mrstream.mapreduce.client import client

        status = client.run(spec, cluster, background=background)
    if status == 0 and not background:
        print(f"To see the tables: mrstream dump --source {request.destination}", file=sys.stderr)
    return status


def _property(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise BadWords(f"mrstream saw: -D {word} sets nothing; it must be NAME=VALUE")
    return name, value


def _parser() -> Parser:
    made = Parser(
        prog="mrstream saw",
        allow_abbrev=False,
        description="Run a Sawzall program on every record of some files.",
        epilog=f"The guide: docs/guide/saw.md, the language: docs/guide/saw-language.md; {EXIT}",
    )
    made.add_argument("--program", required=True, metavar="FILE", help="the program's text")
    made.add_argument(
        "--input_files",
        action="append",
        default=[],
        metavar="GLOB",
        help="files to read, with wildcards, commas between several; may be given again",
    )
    made.add_argument(
        "--destination",
        metavar="DIR@N",
        help="a new directory for the results, and in how many shards they lie (one without @N)",
    )
    made.add_argument(
        "--workqueue",
        metavar="CLUSTER",
        help=f"the cluster to run on (default: the current one; {HERE}: this machine)",
    )
    made.add_argument(
        "--ignore_undefs",
        action="store_true",
        help="skip statements that read an undefined value, and count them, instead of stopping",
    )
    made.add_argument(
        "--timezone", default="UTC", metavar="ZONE", help="zone of times (default: UTC)"
    )
    made.add_argument(
        "--machines",
        type=_count,
        default=0,
        metavar="M",
        help="use at most so many hosts (default: as many as the input's size asks for)",
    )
    made.add_argument(
        "--input_format",
        default="text",
        choices=("text", "keyvalue", "sequence", "auto", "records", "delimited", "saw"),
        help="how files are cut into records: lines, lines with a key, sequence files (auto: by "
        "their first bytes), records of record append, messages behind their lengths, or the rows "
        "of another Sawzall job's tables as CSV (default: %(default)s)",
    )
    made.add_argument(
        "-D", action="append", default=[], metavar="NAME=VALUE", help="a setting of the job"
    )
    made.add_argument("--background", action="store_true", help="start the job and do not wait")
    made.add_argument("--check", action="store_true", help="only look for faults in the program")
    made.add_argument(
        "--print_python", action="store_true", help="only print the Python that would run"
    )
    return made


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of hosts, 1 or more")
    return int(word)
