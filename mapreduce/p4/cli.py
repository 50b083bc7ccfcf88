"""`mrstream p4 master|worker|submit|shutdown`: the course's MapReduce server.

A root: it may import anything, and nothing imports it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Sequence

from mrstream.cluster.errors import Unavailable
from mrstream.mapreduce.p4.brain.layout import EDITIONS
from mrstream.mapreduce.p4.brain.messages import (
    MAPS_MAX,
    REDUCES_MAX,
    NewMasterJob,
    Shutdown,
    encode,
)
from mrstream.mapreduce.p4.transport import LOCALHOST, send_once

NOTICE = (
    "This protocol has no authentication. Everything listens on localhost only; whoever can "
    "connect there has programs run as you."
)


def main(argv: Sequence[str]) -> int:
    """Do what the words ask for; give the exit status."""
    said = _parser().parse_args(list(argv))
    logging.basicConfig(
        level=logging.DEBUG if getattr(said, "verbose", False) else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    status: int = said.run(said)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mrstream p4",
        description="The MapReduce server of a university course; see docs/guide/p4.md. " + NOTICE,
    )
    verbs = parser.add_subparsers(required=True, metavar="master|worker|submit|shutdown")
    _add_master(verbs)
    _add_worker(verbs)
    _add_submit(verbs)
    shutdown = verbs.add_parser("shutdown", help="end a master and its workers")
    shutdown.add_argument("port", type=_port, help="the master's TCP port")
    shutdown.set_defaults(run=_shutdown)
    return parser


def _add_master(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    master = verbs.add_parser("master", help="run a master", description=NOTICE)
    master.add_argument(
        "port", type=_master_port, help="TCP port; heartbeats come to UDP port PORT - 1"
    )
    master.add_argument(
        "--outstanding-per-worker",
        type=_count,
        default=0,
        metavar="N",
        help="tasks that a worker may have at once (default: all are sent at once)",
    )
    master.add_argument(
        "--edition",
        choices=sorted(EDITIONS),
        default="2017",
        help="whose names of directories and files (default: 2017)",
    )
    master.add_argument(
        "--round-robin-by-key",
        action="store_true",
        help="deal keys to reduces in turn instead of by their hash",
    )
    master.add_argument(
        "--wipe", action="store_true", help="remove ./var whatever it holds (default: only jobs)"
    )
    master.add_argument("--verbose", action="store_true", help="log every event and command")
    master.set_defaults(run=_master)


def _add_worker(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    worker = verbs.add_parser("worker", help="run a worker", description=NOTICE)
    worker.add_argument("master_port", type=_master_port, help="the master's TCP port")
    worker.add_argument("worker_port", type=_port, help="the TCP port to listen on")
    worker.add_argument(
        "--reduce-status",
        choices=("output_files", "output_file"),
        default="output_files",
        help="how a reduce is reported; output_file is what the assignment prints",
    )
    worker.add_argument("--verbose", action="store_true", help="log every event and command")
    worker.set_defaults(run=_worker)


def _add_submit(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    submit = verbs.add_parser(
        "submit",
        help="send a job to a master",
        description="Paths are opened by the master and the workers, from where they were started.",
    )
    submit.add_argument("port", type=_port, help="the master's TCP port")
    submit.add_argument("input_directory")
    submit.add_argument("output_directory")
    submit.add_argument("mapper_executable")
    submit.add_argument("reducer_executable")
    submit.add_argument("--mappers", type=_maps, default=2, metavar="N", help="default: 2")
    submit.add_argument("--reducers", type=_reduces, default=1, metavar="N", help="default: 1")
    submit.set_defaults(run=_submit)


def _master(said: argparse.Namespace) -> int:
    from mrstream.mapreduce.p4.master import Master, MasterOptions

    options = MasterOptions(
        said.port,
        said.outstanding_per_worker,
        EDITIONS[said.edition],
        said.round_robin_by_key,
        said.wipe,
    )

    async def run() -> None:
        await Master(options).run()

    asyncio.run(run())
    return 0


def _worker(said: argparse.Namespace) -> int:
    from mrstream.mapreduce.p4.worker import Worker, WorkerOptions

    literal = said.reduce_status == "output_file"
    options = WorkerOptions(said.master_port, said.worker_port, literal)

    async def run() -> None:
        await Worker(options).run()

    asyncio.run(run())
    return 0


def _submit(said: argparse.Namespace) -> int:
    job = NewMasterJob(
        said.input_directory,
        said.output_directory,
        said.mapper_executable,
        said.reducer_executable,
        said.mappers,
        said.reducers,
    )
    _send(said.port, encode(job))
    return 0


def _shutdown(said: argparse.Namespace) -> int:
    _send(said.port, encode(Shutdown()))
    return 0


def _send(port: int, data: bytes) -> None:
    try:
        asyncio.run(send_once(LOCALHOST, port, data))
    except (OSError, TimeoutError):
        raise Unavailable(
            f"no master listens on port {port} of localhost; start one: mrstream p4 master {port}"
        ) from None


def _between(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(
                f"{text!r} must be a whole number from {low} to {high}"
            )
        return int(text)

    return number


_port = _between(1, 65535)
_master_port = _between(2, 65535)
_count = _between(1, 1_000_000)
_maps = _between(1, MAPS_MAX)
_reduces = _between(1, REDUCES_MAX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
