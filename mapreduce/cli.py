"""`mrstream job …`, `mrstream -repeat`, `-bisect` and `-check`: looking at jobs, past and present.

A root: it may import anything, and imports what a verb needs when the verb is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mrstream.cluster.errors import UserError


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
    if _is_of_this_machine(rest) or not _is_on_a_cluster():
        from mrstream.mapreduce.local import job_cli

        return job_cli.main([verb, *rest] if verb else [])
    from mrstream.mapreduce.client import job_questions_cli

    return job_questions_cli.main([verb, *rest] if verb else [])


def _is_of_this_machine(words: Sequence[str]) -> bool:
    """Whether the words name a job, or an attempt, that ran without a cluster."""
    return any(word.startswith(("job_local", "attempt_local", "task_local")) for word in words)


def _is_on_a_cluster() -> bool:
    """Whether there is a current cluster, without loading what reads its file."""
    from mrstream.cluster.config import state

    return state.chosen() is not None


def _bring(attempt_id: str) -> str:
    """Have the attempt's job and input on this machine."""
    if _is_of_this_machine([attempt_id]):
        return attempt_id
    from mrstream.cluster.config import state
    from mrstream.cluster.config.config import current_cluster
    from mrstream.mapreduce.client import kept_fetch

    try:
        cluster = current_cluster()
    except state.ClusterIsDown:
        if not kept_fetch.is_here(attempt_id):
            raise
        return attempt_id
    if cluster is not None:
        kept_fetch.fetch(attempt_id, cluster)
    return attempt_id


def _repeat(words: list[str]) -> int:
    from mrstream.mapreduce.local import repeat

    return repeat.repeat(_bring(_only(words, "-repeat")))


def _bisect(words: list[str]) -> int:
    from mrstream.mapreduce.local import repeat

    return repeat.bisect(_bring(_only(words, "-bisect")))


def _check(words: list[str]) -> int:
    from mrstream.mapreduce.local import check
    from mrstream.streaming.command import options
    from mrstream.streaming.command.command import command_of

    return check.run(command_of(options.parse(words)))


def _only(words: list[str], verb: str) -> str:
    if len(words) != 1:
        raise UserError(f"mrstream {verb} needs one attempt id, such as a failed job prints it")
    return words[0]
