"""The master of `cluster/leader/__init__.py`, word for word, as a daemon: test_leader.py."""

from __future__ import annotations

import sys
import textwrap
import time
from typing import Any, ClassVar

import mrstream.cluster.leader
from mrstream.cluster.config.config import LOCK_MASTER
from mrstream.cluster.daemon import run
from mrstream.cluster.leader.office import Office
from mrstream.cluster.wire.messages import Request


class Add(Request, frozen=True):
    """Add to the sum, and say what it is then."""

    reply: ClassVar[Any] = int
    count: int


class Hang(Request, frozen=True):
    """Keep the loop busy."""

    seconds: float


def example() -> Any:
    """The class in the docstring."""
    text = mrstream.cluster.leader.__doc__ or ""
    code = textwrap.dedent(text[text.index("    class Counter") : text.index("`guard` refuses")])
    names: dict[str, Any] = {"Office": Office, "Add": Add}
    exec(compile(code, "cluster/leader/__init__.py", "exec"), names)
    return names["Counter"]


def build(daemon: Any) -> Any:
    """The same, with what every daemon has."""
    counter = example()(daemon)
    counter.handlers[Hang] = lambda request, peer: time.sleep(request.seconds)
    counter.metrics = lambda: {"total": float(counter.total)}
    counter.connected = counter.disconnected = lambda peer: None
    return counter


def main() -> int:
    return run(LOCK_MASTER, build)


if __name__ == "__main__":
    sys.exit(main())
