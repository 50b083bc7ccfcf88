"""`mrstream top`: the terminal monitor."""

from __future__ import annotations

import argparse
import sys

from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.view.source import Source

GROUPS_S_MAX = 10.0
"""For a picture that is taken once, every member is waited for, or until it is given up."""
_MORE = """\
In the monitor: 1 jobs, 2 hosts, 3 files, Enter opens, Esc goes back, / finds,
? shows all keys, q quits. The guide: docs/guide/top.md

examples:
  mrstream top
  mrstream top job_1763280000123_0042
  mrstream top --once | grep '^Missing'
  mrstream top --demo

exit status: 0 done; 1 no cluster, no such job, or no terminal; 2 wrong words"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    words = argparse.ArgumentParser(
        prog="mrstream top",
        description="Watch, understand and steer the cluster.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_MORE,
    )
    words.add_argument(
        "job",
        nargs="?",
        default="",
        metavar="JOB",
        help="open this job at once (with --once: show only this job)",
    )
    words.add_argument(
        "-cluster",
        "--cluster",
        metavar="FILE",
        help="the cluster file, or the name of a known cluster (default: the current one)",
    )
    words.add_argument(
        "--once", action="store_true", help="print one plain-text picture and exit, for scripts"
    )
    words.add_argument("--json", action="store_true", help="with --once: the picture as JSON")
    words.add_argument("--read-only", action="store_true", help="hide all actions")
    words.add_argument(
        "--demo",
        action="store_true",
        help="the paper's sort on 1,746 simulated workers, in fast motion; needs no cluster",
    )
    return words


def main(argv: list[str]) -> int:
    """Run the monitor; return the exit status."""
    words = parser()
    chosen = words.parse_args(argv)
    if chosen.json and not chosen.once:
        words.error("--json needs --once")
    try:
        if chosen.demo:
            return _demo(chosen)
        return _watch(chosen)
    except ClusterError as error:
        print(f"mrstream top: {error}", file=sys.stderr)
        return 1


def _demo(chosen: argparse.Namespace) -> int:
    from mrstream.view.demo import DemoSource

    source = DemoSource()
    if chosen.once:
        source.advance_to(60.0)  # a minute of 1,746 workers takes seconds
        return _once(source, as_json=chosen.json)
    return _run(source, source.job_id, read_only=chosen.read_only)


def _watch(chosen: argparse.Namespace) -> int:
    from mrstream.view.source import ClusterSource

    source = ClusterSource.of_current(chosen.cluster)
    if chosen.once:
        return _once(source, chosen.job, as_json=chosen.json)
    return _run(source, chosen.job, read_only=chosen.read_only)


def _once(source: Source, job_id: str = "", *, as_json: bool = False) -> int:
    from mrstream.tui.once import json_picture, plain_picture, troubles
    from mrstream.view.picture import Picture

    picture = Picture(cluster=source.cluster)
    try:
        picture.see_groups(source.groups(GROUPS_S_MAX), source.now_s())
        picture.see_cluster(source.snapshot(0, 0))
        picture.storage = source.storage()
    except Unavailable:
        for line in troubles(picture):
            print(line, file=sys.stderr)
        raise
    finally:
        source.close()
    if job_id and picture.jobs.get(job_id) is None:
        raise UserError(f"there is no job {job_id}, or it ended long ago: `mrstream job -list all`")
    if as_json:
        sys.stdout.write(json_picture(picture, source.now_s(), job_id))
    else:
        sys.stdout.write(plain_picture(picture, source.now_s(), job_id))
    return 0


def _run(source: Source, job_id: str, *, read_only: bool) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        source.close()
        print(
            "mrstream top: standard input, output or error is not a terminal; "
            "use --once for one picture as text",
            file=sys.stderr,
        )
        return 1
    from mrstream.tui.app import Monitor

    Monitor(source, job_id=job_id, read_only=read_only).run()
    return 0
