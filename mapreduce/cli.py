"""`mrstream job …`, `mrstream -repeat`, `-bisect` and `-check`: looking at jobs, past and present.

A root: it may import anything, and imports what a verb needs when the verb is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from cluster.errors import UserError

USAGE = """usage: mrstream -repeat ATTEMPT      run a failed attempt again, here, with its input
       mrstream -bisect ATTEMPT      find the record that makes it fail
       mrstream -check OPTIONS…      run a job on a sample, and tell where results differ
       mrstream job -list [all]      jobs
       mrstream job -status JOB      how a job is doing, or how it went
       mrstream job -counter JOB GROUP NAME
       mrstream job -logs JOB [ATTEMPT]
       mrstream job -history JOB
       mrstream job -events JOB
       mrstream job -kill JOB"""


def main(argv: Sequence[str]) -> int:
    """Do what the words ask for; give the exit status."""
    words = [word.replace("--", "-", 1) if word.startswith("--") else word for word in argv[:1]]
    verb = words[0] if words else ""
    rest = list(argv[1:])
    known: dict[str, Callable[[list[str]], int]] = {
        "-repeat": _repeat,
        "-bisect": _bisect,
        "-check": _check,
    }
    if verb in known:
        return known[verb](rest)
    from mapreduce import job_cli

    return job_cli.main([verb, *rest] if verb else [])


def _repeat(words: list[str]) -> int:
    from mapreduce import repeat

    return repeat.repeat(_only(words, "-repeat"))


def _bisect(words: list[str]) -> int:
    from mapreduce import repeat

    return repeat.bisect(_only(words, "-bisect"))


def _check(words: list[str]) -> int:
    from mapreduce import check
    from streaming import options
    from streaming.command import command_of

    return check.run(command_of(options.parse(words)))


def _only(words: list[str], verb: str) -> str:
    if len(words) != 1:
        raise UserError(f"mrstream {verb} needs one attempt id, such as a failed job prints it")
    return words[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
