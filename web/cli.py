"""`mrstream web`: the cluster in a browser on this machine."""

from __future__ import annotations

import argparse
import asyncio
import sys

from mrstream.cluster.config.extras import require
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.user import user_name
from mrstream.view.source import Source

_MORE = """\
Serves on 127.0.0.1 only, for you alone: the link that is printed lets one browser in, once, within
ten minutes. Ctrl-C ends it. The guide: docs/guide/web.md

examples:
  mrstream web --open
  mrstream web --port 8080 --read-only
  mrstream web --on h1
  mrstream web --demo

exit status: 0 ended by Ctrl-C; 1 no cluster, or a port that is taken; 2 wrong words"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    words = argparse.ArgumentParser(
        prog="mrstream web",
        description="Watch, understand and steer the cluster in a browser.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_MORE,
    )
    words.add_argument(
        "--port", type=int, default=0, metavar="N", help="the port (default: one that is free)"
    )
    words.add_argument("--read-only", action="store_true", help="look only: no action is possible")
    words.add_argument("--open", action="store_true", help="open the link in a browser, too")
    words.add_argument(
        "--on",
        metavar="HOST",
        help="serve nothing here: print a link to the pages of the gateway on HOST",
    )
    words.add_argument(
        "--demo",
        action="store_true",
        help="the paper's sort on 1,746 simulated workers, in fast motion; needs no cluster",
    )
    words.add_argument(
        "-cluster",
        "--cluster",
        metavar="FILE",
        help="the cluster file, or the name of a known cluster (default: the current one)",
    )
    return words


def main(argv: list[str]) -> int:
    """Serve the pages until interrupted; return the exit status."""
    chosen = parser().parse_args(argv)
    try:
        require(["http"], "`mrstream web`")
        if not 0 <= chosen.port <= 65535:
            raise UserError(f"--port is {chosen.port}; it must be 0 to 65535")
        return _print_link(chosen) if chosen.on else _serve(chosen)
    except ClusterError as error:
        print(f"mrstream web: {error}", file=sys.stderr)
        return 1


def _serve(chosen: argparse.Namespace) -> int:
    from mrstream.web.local import serve

    source = _source(chosen)

    def tell(link: str) -> None:
        _tell(f"{source.cluster}: {link}", link, also_open=chosen.open)
        print("Ctrl-C ends it.", file=sys.stderr)

    asyncio.run(serve(source, port=chosen.port, read_only=chosen.read_only, tell=tell))
    return 0


def _print_link(chosen: argparse.Namespace) -> int:
    import time

    from mrstream.cluster.config.config import current_cluster
    from mrstream.web.looking import link_to

    cluster = current_cluster(chosen.cluster)
    if cluster is None:
        raise UserError("which cluster? There is no current one: use -cluster FILE")
    link = link_to(cluster, chosen.on, user_name(), read_only=chosen.read_only, now_s=time.time())
    _tell(link, link, also_open=chosen.open)
    return 0


def _tell(words: str, link: str, *, also_open: bool) -> None:
    print(words, flush=True)
    print("The link works once, within ten minutes.", file=sys.stderr)
    if also_open:
        import webbrowser

        if not webbrowser.open(link):
            print("mrstream web: no browser could be opened here", file=sys.stderr)


def _source(chosen: argparse.Namespace) -> Source:
    if chosen.demo:
        from mrstream.view.demo import DemoSource

        return DemoSource()
    from mrstream.view.source import ClusterSource

    return ClusterSource.of_current(chosen.cluster)
