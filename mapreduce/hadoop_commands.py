"""`mrstream hadoop-commands DIR` writes `hadoop`, `hdfs`, `mapred`, `yarn`; and what those run.

With DIR first on PATH, programs and scripts that call Hadoop's commands (mrjob, Luigi, shell
scripts) run on mrstream, unmodified. `hadoop_words` says what their words mean. Never decides
anything about jobs or files: the `mrstream` command does all the work.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mrstream.cluster.config import state
from mrstream.cluster.errors import INTERRUPTED, ClusterError, UserError
from mrstream.cluster.terminal import mask_terminals, show
from mrstream.mapreduce.hadoop_words import (
    COMMANDS,
    HADOOP_VERSION,
    JAR,
    Places,
    meaning_of,
    retold,
)

if TYPE_CHECKING:
    from mrstream.mapreduce.history import JobRecord
    from mrstream.mapreduce.snapshot import JobRow

USAGE = """usage: mrstream hadoop-commands DIR

Writes the commands hadoop, hdfs, mapred and yarn into DIR. Put it first on PATH, and programs that
call Hadoop run on mrstream: mrjob (-r hadoop), Luigi's hadoop module, old scripts. Without a
cluster hdfs:// paths lie in the state directory."""
_SCRIPT = """#!/bin/sh
# Written by `mrstream hadoop-commands`: Hadoop's `{name}`, on mrstream.
exec {python} -P -m mrstream.mapreduce.hadoop_commands {name} "$@"
"""
_OF_SCRIPT = b"`mrstream hadoop-commands`"
_OF_JAR = b"Of mrstream: a name for `hadoop jar`, without any Java."
_LOOKED_AT_BYTES = 4096
_YARN_STATES = {"waiting": "ACCEPTED", "running": "RUNNING", "succeeded": "FINISHED"}
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str]) -> int:
    """Write the commands; return the exit status."""
    words = list(argv)
    if len(words) != 1 or words[0].startswith("-"):
        asked = words in (["--help"], ["-help"], ["-h"])
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 1
    directory = os.path.abspath(words[0])
    write_commands(directory)
    print(f"export PATH={_quoted(directory)}:$PATH HADOOP_HOME={_quoted(directory)}")
    return 0


def write_commands(directory: str) -> None:
    """Write the scripts, and a jar of the name and at the place where scripts look for one."""
    import zipfile  # not for the commands themselves

    tools = os.path.join(directory, "share", "hadoop", "tools", "lib")
    jar_path = os.path.join(tools, JAR)
    try:
        for path in [*(os.path.join(directory, name) for name in COMMANDS), jar_path]:
            _refuse_foreign(path)
        os.makedirs(tools, exist_ok=True)
        for name in COMMANDS:
            _write_script(os.path.join(directory, name), name)
        with contextlib.suppress(FileExistsError):
            os.symlink(".", os.path.join(directory, "bin"))
        with zipfile.ZipFile(jar_path, "w") as jar:
            jar.comment = _OF_JAR
    except OSError as error:
        raise UserError(f"the commands cannot be written: {error}") from None


def _refuse_foreign(path: str) -> None:
    """See that nothing is written over that is not ours: somebody's Hadoop, a script of theirs."""
    if not os.path.lexists(path):
        return
    with open(path, "rb") as file:
        begins = file.read(_LOOKED_AT_BYTES)
    if _OF_SCRIPT not in begins and _OF_JAR not in begins:
        raise UserError(
            f"{path} is there, and not one that mrstream wrote: name a directory of its own"
        )


def _write_script(path: str, name: str) -> None:
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(_SCRIPT.format(name=name, python=_quoted(sys.executable)))
    os.chmod(partial, 0o755)
    os.replace(partial, path)


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


_LISTING = frozenset(("-ls", "-lsr", "-du", "-dus", "-count", "-find", "-checksum"))


# --- what the scripts run


def act(command: str, argv: Sequence[str]) -> int:
    """Be a Hadoop command; return the exit status."""
    places = _places()
    meant = meaning_of(command, argv, places)
    match meant.kind:
        case "version":
            return _version()
        case "job":
            return _job(meant.words, places)
        case "applications":
            return _applications(meant.words)
        case "application":
            return _application(meant.words[0])
    if places.is_local and _LISTING & set(meant.words[:4]):
        return _listed(meant.words, places.shell)
    return _run(meant.words)


def _run(words: Sequence[str]) -> int:
    # By its name: a root may import anything, and nothing imports a root.
    status: int = importlib.import_module("mrstream.streaming.cli").main(list(words))
    return status


def _listed(words: Sequence[str], here: str) -> int:
    """Run a verb that lists paths, and show them as `hdfs://`: who asked for a directory by that
    name looks for it in front of every path, and cuts it off."""
    memory = io.BytesIO()
    held = io.TextIOWrapper(memory, "utf-8", "surrogateescape")
    with contextlib.redirect_stdout(held):
        status = _run(words)
    held.flush()
    show(sys.stdout, memory.getvalue().replace(f"{here}/".encode(), b"hdfs:///"))
    return status


def _places() -> Places:
    """Say where `hdfs://` is: in the current cluster's dfs, else in the state directory."""
    cluster = state.chosen_config()
    if cluster is None:
        here = os.path.join(os.path.abspath(state.home()), "hdfs")
        return Places(here, here, is_local=True)
    return Places("", f"dfs://{cluster.name}")


def _version() -> int:
    from mrstream.cluster.version import version

    print(f"Hadoop {HADOOP_VERSION}")
    print(f"This is mrstream {version()}, with the commands of Hadoop")
    return 0


def _job(words: Sequence[str], places: Places) -> int:
    """Run a job, and retell its lines as Hadoop's own."""

    def url_of(path: str) -> str:
        return f"hdfs://{path.removeprefix(places.job)}" if path.startswith(("/", "dfs:")) else path

    from mrstream.mapreduce.launch import command_words

    process = subprocess.Popen(command_words(words), stderr=subprocess.PIPE, process_group=0)
    for number in _PASSED_ON:
        signal.signal(number, lambda caught, _: _pass_on(process, caught))
    assert process.stderr is not None
    for data in process.stderr:
        for line in retold(data.decode("utf-8", "replace").rstrip("\n"), url_of):
            print(line, file=sys.stderr, flush=True)
    return process.wait()


def _pass_on(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)


def _applications(words: Sequence[str]) -> int:
    states = [word.upper() for word in words if not word.startswith("-")]
    wants_all = bool(set(states) & {"ALL", "FINISHED", "FAILED", "KILLED"})
    rows = _job_rows(all_jobs=wants_all)
    if states and "ALL" not in states:
        rows = [row for row in rows if _yarn_state(row) in ",".join(states).split(",")]
    shown = ", ".join(states) if states else "SUBMITTED, ACCEPTED, RUNNING"
    print(
        f"Total number of applications (application-types: [], states: [{shown}] and tags: []):"
        f"{len(rows)}"
    )
    names = (
        "Application-Id", "Application-Name", "Application-Type", "User", "Queue", "State",
        "Final-State", "Progress", "Tracking-URL",
    )  # fmt: skip
    print("\t".join(f"{name:>20}" for name in names))
    for row in rows:
        print("\t".join(f"{word:>20}" for word in _application_words(row)))
    return 0


def _application_words(row: JobRow) -> tuple[str, ...]:
    progress = 100.0 * ((row.map_fraction + row.reduce_fraction) / (2 if row.reduces else 1))
    return (
        _application_id(row.key), row.name, "MAPREDUCE", row.user, "default", _yarn_state(row),
        row.state.upper() if row.finished_at_s else "UNDEFINED",
        f"{100.0 if row.state == 'succeeded' else progress:.4g}%", "N/A",
    )  # fmt: skip


def _application(job_id: str) -> int:
    rows = [row for row in _job_rows(all_jobs=True) if row.key == job_id]
    if not rows:
        raise UserError(f"Application with id '{_application_id(job_id)}' doesn't exist.")
    words = _application_words(rows[0])
    print("Application Report : ")
    titles = ("Application-Id", "Application-Name", "Application-Type", "User", "Queue", "State",
              "Final-State", "Progress", "Tracking-URL")  # fmt: skip
    for title, word in zip(titles, words, strict=True):
        print(f"\t{title} : {word}")
    row = rows[0]
    print(f"\tStart-Time : {int(row.submitted_at_s * 1000)}")
    print(f"\tFinish-Time : {int(row.finished_at_s * 1000)}")
    print(f"\tDiagnostics : {row.diagnosis}")
    return 0


def _yarn_state(row: JobRow) -> str:
    return _YARN_STATES.get(row.state, row.state.upper())


def _application_id(job_id: str) -> str:
    return f"application_{job_id.removeprefix('job_')}"


def _job_rows(*, all_jobs: bool) -> list[JobRow]:
    """Return the jobs of the current cluster, else those that ran here."""
    from mrstream.cluster.config.config import current_cluster

    cluster = current_cluster()
    if cluster is None:
        from mrstream.mapreduce import history

        rows = [_row_here(record) for record in history.all_jobs()]
        return rows if all_jobs else [row for row in rows if row.state == "running"]
    from mrstream.mapreduce.client.client import JobClient
    from mrstream.mapreduce.protocol import ListJobs

    with JobClient(cluster) as client:
        found: list[JobRow] = client.call(ListJobs(all_jobs))
    return found


def _row_here(record: JobRecord) -> JobRow:
    from mrstream.mapreduce.snapshot import JobRow

    report = record.read_report()
    number = record.job_id.removeprefix("job_local").partition("_")[0]
    began_s = int(number) / 1000 if number.isdigit() else time.time()
    ended_s = began_s + report["elapsed_s"] if "elapsed_s" in report else 0.0
    return JobRow(
        record.job_id,
        name=report.get("name", ""),
        state=report.get("state", "running"),
        submitted_at_s=began_s,
        finished_at_s=ended_s,
    )


def _start(argv: Sequence[str]) -> int:
    mask_terminals()
    try:
        status = act(argv[0], argv[1:])
        sys.stdout.flush()
        return status
    except ClusterError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Who wanted the first lines has them. Hadoop's own do not notice either, and scripts rely
        # on their status (`set -o pipefail`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


if __name__ == "__main__":
    sys.exit(_start(sys.argv[1:]))
