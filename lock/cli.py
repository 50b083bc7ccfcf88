"""`mrstream lock …`: the cell's files and locks from a shell.

A root: nothing imports it. Exit status 0, 1 when something failed, 2 for wrong usage, 75 when a
lock was not had in time, 76 when the session was lost, 130 when interrupted; of `acquire` and
`elect`, that of the command.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from mrstream.cluster.config.config import LOCK_MASTER, current_cluster
from mrstream.cluster.errors import INTERRUPTED, ClusterError, UserError
from mrstream.cluster.leader.group_view import SHADOW, GroupView, look_at_group
from mrstream.cluster.units import parse_time
from mrstream.lock import protocol as p
from mrstream.lock.client.client import CellClient, connect
from mrstream.lock.client.handle import Held
from mrstream.lock.client.session import Expired, News
from mrstream.lock.errors import LockHeld, SessionExpired
from mrstream.lock.running import LOST, NOT_HAD, Guarded
from mrstream.lock.sequencer import ENVIRONMENT, fences_within, parse

_EVENTS = {
    p.CONTENTS_CHANGED: "contents",
    p.CHILDREN_CHANGED: "children",
    p.HANDLE_INVALID: "deleted",
    p.FAILED_OVER: "failed-over",
}


def main(argv: list[str]) -> int:
    """Run one verb; return its exit status."""
    at = argv.index("--") if "--" in argv else len(argv)
    options = _parser().parse_args(argv[:at])
    options.command = argv[at + 1 :]
    if options.command and options.verb not in ("acquire", "elect", "watch"):
        print(f"mrstream lock {options.verb} runs no command", file=sys.stderr)
        return 2
    if options.verb in ("acquire", "elect") and not options.command:
        print(f"usage: mrstream lock {options.verb} PATH -- COMMAND …", file=sys.stderr)
        return 2
    verb: Callable[[argparse.Namespace], int] = options.run
    try:
        return verb(options)
    except LockHeld as error:
        print(error, file=sys.stderr)
        return NOT_HAD if options.verb in ("acquire", "elect") else 1
    except SessionExpired as error:
        print(error, file=sys.stderr)
        return LOST
    except ClusterError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED


# --- the command line


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mrstream lock",
        description="Small files, locks and elections, as Chubby has them. PATH is /ls/local/NAME…",
        epilog="docs/guide/locks.md explains sessions, delays and sequencers.",
    )
    parser.add_argument("-cluster", metavar="FILE", help="the cluster, if not the current one")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *arguments: str
    ) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=text, description=text)
        one.set_defaults(run=run)
        for argument in arguments:
            one.add_argument(argument, metavar=argument.upper())
        return one

    verb("ls", _ls, "list a directory", "path")
    stat = verb("stat", _stat, "show a node's numbers and its lock", "path")
    verb("cat", _cat, "print a file", "path")
    verb("mkdir", _mkdir, "make a directory", "path")
    verb("rm", _rm, "delete a node without children whose lock is free", "path")
    put = verb("put", _put, "write a whole file, at most 256 KiB, and print its generation", "path")
    put.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: stdin")
    put.add_argument(
        "--if-generation", type=int, default=p.ANY_GENERATION, metavar="N",
        help="only if the file is still of this generation (0: only if there is none)",
    )  # fmt: skip
    acquire = verb("acquire", _acquire, "run a command while holding a lock", "path")
    acquire.usage = "mrstream lock acquire [--shared] [--wait 30s] [--delay 15s] PATH -- COMMAND …"
    acquire.add_argument("--shared", action="store_true", help="with others that share it")
    acquire.add_argument(
        "--wait", type=_seconds, metavar="TIME", help="give up after so long, with status 75"
    )
    elect = verb("elect", _elect, "be the primary while a command runs: wait in line", "path")
    elect.usage = "mrstream lock elect [--name NAME] [--delay 15s] PATH -- COMMAND …"
    elect.add_argument("--name", default="", help="what the file shall hold; default: HOST:PID")
    for one in (acquire, elect):
        one.add_argument(
            "--delay", type=_seconds, default=0.0, metavar="TIME",
            help="if this host fails, nobody has the lock for so long (at most 60s)",
        )  # fmt: skip
    watch = verb("watch", _watch, "say when a node changes, or run a command each time", "path")
    watch.usage = "mrstream lock watch [--once] PATH [-- COMMAND …]"
    watch.add_argument("--once", action="store_true", help="end after the first change")
    verb("check", _check, "is the lock of this sequencer held by it now?", "sequencer")
    sessions = verb("sessions", _sessions, "list all sessions")
    cell = verb("cell", _cell, "show the cell and its leader")
    for one in (stat, sessions, cell):
        one.add_argument("--json", action="store_true", help="for programs")
    return parser


def _connect(
    options: argparse.Namespace, on_news: Callable[[News], None] | None = None
) -> CellClient:
    return connect(options.cluster, program=f"mrstream lock {options.verb}", on_news=on_news)


# --- files


def _ls(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        stat = cell.stat(options.path)
        for name in cell.list(options.path) if stat.is_directory else [options.path]:
            print(name)
    return 0


def _stat(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        stat, lock = cell.stat(options.path), cell.lock_state(options.path)
    if options.json:
        print(json.dumps(msgspec.to_builtins({"node": _fields(stat), "lock": _fields(lock)})))
        return 0
    kind = "directory" if stat.is_directory else "file"
    rows = [
        ("path", stat.path),
        ("kind", f"{'ephemeral ' if stat.is_ephemeral else ''}{kind}"),
        ("length", f"{stat.length_bytes:,} bytes"),
        ("checksum", f"{stat.checksum:016x}"),
        ("instance", stat.instance),
        ("content generation", stat.content_generation),
        ("lock generation", lock.generation),
        ("acl generation", stat.acl_generation),
        ("acl", " ".join(f"{k}={v or '*'}" for k, v in _fields(stat.acl).items())),
        ("lock", _lock_words(lock)),
        ("open", f"{lock.open_count} handles, {lock.waiting_count} waiting for the lock"),
    ]
    for name, value in rows:
        print(f"{name + ':':20}{value}")
    return 0


def _lock_words(lock: p.LockState) -> str:
    if lock.is_held:
        return f"{'shared' if lock.is_shared else 'exclusive'}, held by {', '.join(lock.holders)}"
    return f"free in {lock.delay_left_s:.0f} s (lock-delay)" if lock.delay_left_s else "free"


def _fields(message: msgspec.Struct) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def _cat(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        sys.stdout.buffer.write(cell.get(options.path))
        sys.stdout.buffer.flush()
    return 0


def _mkdir(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        if not cell.mkdir(options.path):
            print(f"{options.path} exists", file=sys.stderr)
            return 1
    return 0


def _rm(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        cell.delete(options.path)
    return 0


def _put(options: argparse.Namespace) -> int:
    try:
        if options.file == "-":
            contents = sys.stdin.buffer.read(p.CONTENTS_BYTES_MAX + 1)
        else:
            with open(options.file, "rb") as file:
                contents = file.read(p.CONTENTS_BYTES_MAX + 1)
    except OSError as error:
        raise UserError(f"{options.file} cannot be read: {error.strerror}") from None
    if len(contents) > p.CONTENTS_BYTES_MAX:
        raise UserError(
            f"{options.file} has more than {p.CONTENTS_BYTES_MAX:,} bytes, the most that a file of "
            "a lock cell holds: put it into the dfs, and its path here"
        )
    with _connect(options) as cell:
        print(cell.put(options.path, contents, options.if_generation))
    return 0


# --- locks


def _acquire(options: argparse.Namespace) -> int:
    def take(cell: CellClient) -> Held:
        return cell.acquire(
            options.path, shared=options.shared, wait_s=options.wait, delay_s=options.delay
        )

    return _run_under(options, take)


def _elect(options: argparse.Namespace) -> int:
    name = options.name or f"{socket.gethostname()}:{os.getpid()}"
    return _run_under(
        options, lambda cell: cell.elect(options.path, name.encode(), delay_s=options.delay)
    )


def _run_under(options: argparse.Namespace, take: Callable[[CellClient], Held]) -> int:
    guarded = Guarded(options.path)
    with _connect(options, guarded.heard) as cell, take(cell) as held:
        fences = fences_within(os.environ.get(ENVIRONMENT, ""), parse(held.sequencer))
        return guarded.run(options.command, {ENVIRONMENT: fences})


def _check(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        is_good = cell.check(options.sequencer)
    print("held" if is_good else "not held")
    return 0 if is_good else 1


# --- events


def _watch(options: argparse.Namespace) -> int:
    told: queue.SimpleQueue[p.Happened | None] = queue.SimpleQueue()

    def heard(news: News) -> None:
        if isinstance(news, Expired):
            told.put(None)

    with _connect(options, heard) as cell:
        cell.watch(options.path, told.put)
        print(f"watching {options.path}", file=sys.stderr, flush=True)
        while True:
            event = told.get()
            if event is None:
                raise SessionExpired(f"{options.path}: the session is over; watch it again")
            word = _EVENTS.get(event.kind)
            if word is None:
                continue
            if options.command:
                _run_for(options.command, word, event.path)
            else:
                print(f"{word} {event.path}", flush=True)
            if event.kind == p.HANDLE_INVALID:
                return 0 if options.once else 1
            if options.once:
                return 0


def _run_for(command: list[str], word: str, path: str) -> None:
    environment = {**os.environ, "MRSTREAM_EVENT": word, "MRSTREAM_PATH": path}
    try:
        subprocess.run(command, env=environment, check=False)
    except OSError as error:
        raise UserError(f"{command[0]}: {error.strerror}") from None


# --- the cell


def _sessions(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        rows = cell.sessions()
    if options.json:
        print(json.dumps([msgspec.to_builtins(_fields(row)) for row in rows]))
        return 0
    print(f"{'SESSION':>8}  {'USER':12} {'HOST':16} {'LEASE':>6} {'OPEN':>5}  PROGRAM, LOCKS")
    for row in rows:
        locks = "".join(f"\n{'':10}holds {path}" for path in row.locks)
        print(
            f"{row.session:>8}  {row.user:12} {row.host:16} {row.lease_left_s:>5.0f}s "
            f"{row.handle_count:>5}  {row.program}{locks}"
        )
    return 0


def _group(options: argparse.Namespace) -> GroupView | None:
    """The members of the cell, where there are several."""
    cluster = current_cluster(options.cluster)
    if cluster is None or len(cluster.config.masters_of(LOCK_MASTER)) == 1:
        return None
    return look_at_group(cluster, LOCK_MASTER)


def _cell(options: argparse.Namespace) -> int:
    with _connect(options) as cell:
        began_s = time.monotonic()
        where, figures = cell.locate(), cell.figures()
        took_s = time.monotonic() - began_s
    group = _group(options)
    if options.json:
        document = {
            "leader": _fields(where),
            "cell": _fields(figures),
            "group": None if group is None else group.document(),
        }
        print(json.dumps(msgspec.to_builtins(document)))
        return 0
    print(f"leader:    {where.host} ({where.address}), epoch {where.epoch}, {1000 * took_s:.0f} ms")
    for host, member in group.members.items() if group is not None else ():
        behind = f", {member.behind_s:.1f} s behind" if member.state == SHADOW else ""
        why = f": {member.why}" if member.why else f" at record {member.sequence:,}"
        print(f"member:    {host}, {member.state}{behind}{why}")
    print(f"nodes:     {figures.nodes:,} of {figures.nodes_max:,}")
    print(f"contents:  {figures.contents_bytes:,} of {figures.contents_bytes_max:,} bytes")
    print(f"sessions:  {figures.sessions:,}, with leases of {figures.lease_s:g} s")
    print(f"handles:   {figures.handles:,}; locks held: {figures.locks_held:,}")
    print(
        f"cached:    {figures.cached_entries:,} entries; calls waiting: {figures.calls_waiting:,}"
    )
    calls = sum(figures.calls.values())
    kept = figures.calls.get("KeepAlive", 0)
    share = 100 * kept / max(1, calls)
    print(f"calls:     {calls:,} since this leader began, {share:.0f} % KeepAlives")
    return 0
