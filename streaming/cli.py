"""The `mrstream` command: choose what was asked for, run it, turn errors into lines and a status.

A root: the only module of this package that knows the others. Every import of more than
the command line needs is made where it is needed, because most of the time that a tiny job
takes would else be spent here.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from mrstream.cluster.errors import INTERRUPTED, ClusterError, HostUnreachable, UserError
from mrstream.cluster.terminal import mask_terminals
from mrstream.streaming.command import options
from mrstream.streaming.command.options import BadCommandLine, BadOptionWord, NoArguments, Options

if TYPE_CHECKING:
    from mrstream.cluster.config.config import ClusterConfig
    from mrstream.streaming.command.command import StreamingCommand

_LAST_WORDS = ("Try -help for more information", "Streaming Command Failed!")
LAUNCH_FAILED = 5

# First words that are commands of their own; each module has main(argv) -> exit status.
_SUBCOMMANDS = {
    "dfs": "mrstream.dfs.cli",
    "cluster": "mrstream.cluster.cli",
    "job": "mrstream.mapreduce.cli",
    "flow": "mrstream.mapreduce.flow.cli",
    "hadoop-commands": "mrstream.mapreduce.hadoop_commands",
    "lock": "mrstream.lock.cli",
    "top": "mrstream.tui.cli",
    "saw": "mrstream.mapreduce.saw_cli",
    "dump": "mrstream.mapreduce.dump_cli",
    "completion": "mrstream.mapreduce.completion_cli",
    "web": "mrstream.web.cli",
    "key": "mrstream.web.key_cli",
    "p4": "mrstream.mapreduce.p4.cli",
}
# First words that look at the jobs of this machine; the module gets them too.
_JOB_WORDS = tuple(f"-{option.name}" for option in options.OWN_COMMANDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `mrstream` with these words, or with the process's own; return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    mask_terminals()
    try:
        status = _dispatch(words)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone, and with it the place to complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        # A file of the user's, or a full disk: the system's words have the name.
        print(f"mrstream: {error}", file=sys.stderr)
        return 1


def _dispatch(words: list[str]) -> int:
    if words and words[0] in _SUBCOMMANDS:
        more = words[1:] if words[0] == "dfs" else _with_long_help(words[1:])
        return _run_module(_SUBCOMMANDS[words[0]], more)
    if words in (["--version"], ["-version"], ["version"]):
        return _version()
    if words and words[0].replace("--", "-", 1) in _JOB_WORDS:
        return _run_module("mrstream.mapreduce.cli", words)
    try:
        said = options.parse(words)
        if said.tool != options.STREAM_JOB:
            return _typed_bytes_tool(said)
        if said.flags & {"help", "info"}:
            return _help(said)
        return _job(said)
    except UserError as e:
        return _refuse(e, words)
    except ClusterError as e:
        status = _say(e)
        print("Streaming Command Failed!", file=sys.stderr)
        return status


def _with_long_help(words: list[str]) -> list[str]:
    """Help is `-help` to whoever comes from Hadoop, with every command, before any `--`."""
    end = words.index("--") if "--" in words else len(words)
    return ["--help" if word == "-help" else word for word in words[:end]] + words[end:]


def _run_module(name: str, words: list[str]) -> int:
    try:
        status: int = importlib.import_module(name).main(words)
        return status
    except ClusterError as e:
        return _say(e, advise=name != _SUBCOMMANDS["cluster"])


def _say(error: ClusterError, *, advise: bool = True) -> int:
    """Print what went wrong, and where nobody answered what to do; return the exit status."""
    print(error, file=sys.stderr)
    if advise and isinstance(error, HostUnreachable):
        from mrstream.cluster.wire.addresses import WHAT_TO_DO

        print(WHAT_TO_DO, file=sys.stderr)
    return error.exit_status


def _help(said: Options) -> int:
    from mrstream.streaming.command import usage

    print(usage.detailed() if "info" in said.flags else usage.full())
    return 0


def _job(said: Options) -> int:
    from mrstream.streaming.command.command import command_of, opening_lines
    from mrstream.streaming.command.programs import check_programs

    command = command_of(said)
    for line in command.warnings:
        _log("WARN", line)
    for line in command.notes:
        _log("INFO", line)
    if lines := opening_lines(command):
        # Without -output, standard output is the place of results.
        place = sys.stderr if command.output is None else sys.stdout
        print("\n".join(lines), file=place, flush=True)
    cluster = _cluster(command)
    for line in check_programs(command, on_cluster=cluster is not None):
        _log("WARN", line)
    if engine := command.conf.engine or (cluster.engine if cluster is not None else ""):
        status = _run_engine(engine, said, command, cluster)
    elif cluster is None:
        status = _run_here(command)
    else:
        status = _run_on(cluster, command)
    if status not in (0, INTERRUPTED):
        print("Streaming Command Failed!", file=sys.stderr)
    return status


def _run_here(command: StreamingCommand) -> int:
    from mrstream.mapreduce.job import job
    from mrstream.mapreduce.local import run as local

    return local.run(job.spec_from(command), background=command.background)


def _run_on(config: ClusterConfig, command: StreamingCommand) -> int:
    from mrstream.mapreduce.client import client
    from mrstream.mapreduce.job import job

    return client.run(job.spec_from(command), config, background=command.background)


def _run_engine(
    name: str, said: Options, command: StreamingCommand, cluster: ClusterConfig | None
) -> int:
    from mrstream.mapreduce.engine import choice

    chosen = choice.parse(name)
    if chosen is None:
        return _run_here(command) if cluster is None else _run_on(cluster, command)
    if chosen.kind == choice.HADOOP:
        from mrstream.mapreduce.engine import hadoop

        return hadoop.run(said, command, chosen)
    from mrstream.mapreduce.engine import run
    from mrstream.mapreduce.job import job

    return run.run(job.spec_from(command), chosen, cluster, background=command.background)


def _cluster(command: StreamingCommand) -> ClusterConfig | None:
    from mrstream.cluster.config import state

    return None if command.force_local else state.chosen_config(command.cluster)


def _typed_bytes_tool(said: Options) -> int:
    from mrstream.cluster.config import state
    from mrstream.mapreduce import typed_bytes_files
    from mrstream.mapreduce.dataflow.files import RoutedFiles

    if len(said.left_over) != 1:
        what = "GLOB" if said.tool == options.DUMP_TYPED_BYTES else "PATH"
        print(f"usage: mrstream {said.tool} {what}", file=sys.stderr)
        return 1
    path = said.left_over[0]
    cluster = state.chosen_config()
    files = RoutedFiles(f"dfs://{cluster.name}/" if cluster else "file:///", os.getcwd())
    try:
        if said.tool == options.DUMP_TYPED_BYTES:
            typed_bytes_files.dumptb(path, files, sys.stdout.buffer)
        else:
            typed_bytes_files.loadtb(path, files, sys.stdin.buffer)
    except UserError as e:
        print(e, file=sys.stderr)
        return e.exit_status
    return 0


def _version() -> int:
    from mrstream.cluster.version import version

    print(f"mrstream {version()}")
    return 0


def _meant(words: list[str]) -> list[str]:
    """Return the question after the command that a first word is a misspelling of, if it is."""
    import difflib

    close = difflib.get_close_matches(words[0] if words else "", _SUBCOMMANDS, n=1)
    return [f"Did you mean `mrstream {close[0]}`?"] if close else []


def _option_meant(error: str) -> list[str]:
    from mrstream.streaming.command.meant import option_meant

    what, _, word = error.partition(": ")
    meant = option_meant(word) if what == options.UNRECOGNIZED else ""
    return [f"{error}; {meant}" if meant else error]


def _misspelt(words: list[str]) -> list[str]:
    """Return the lines about options that were taken for inputs: warned of, and now the reason."""
    from mrstream.streaming.command.meant import misspelt_inputs

    return list(misspelt_inputs(options.parse(words)))


def _lies_here(words: list[str], error: str) -> list[str]:
    """Return what to do about input that was looked for in the dfs and lies on this machine."""
    if not error.startswith("Input path does not exist: dfs:"):
        return []
    return [
        f"{path} is on this machine: `mrstream dfs -put {path}` stores it in the dfs; with -jt "
        "local the job runs here"
        for before, path in pairwise(words)
        if before == "-input" and os.path.exists(path)
    ]


def _refuse(error: UserError, words: list[str]) -> int:
    """Say why there is no job, with the lines that Hadoop has for it."""
    from mrstream.streaming.command.shipment import NoSuchShippedFile
    from mrstream.streaming.conf.properties import from_wire

    text = from_wire(str(error))
    lines = [text]
    match error:
        case NoArguments():
            from mrstream.streaming.command import usage

            print(usage.SHORT, flush=True)
        case BadOptionWord():
            from mrstream.streaming.command import usage

            _log("ERROR", text)
            print(usage.full(), flush=True)
            # Again, with what was meant, below the usage text that Hadoop prints here.
            lines = ["", *_option_meant(text), *_LAST_WORDS]
        case BadCommandLine():
            lines += [*_meant(words), *_LAST_WORDS]
        case NoSuchShippedFile():
            pass  # Hadoop ends here without its closing line
        case _ if error.exit_status == LAUNCH_FAILED:
            _log("ERROR", f"Error Launching job : {text}")
            lines = [*_misspelt(words), *_lies_here(words, text), "Streaming Command Failed!"]
        case _:
            lines.append("Streaming Command Failed!")
    print("\n".join(lines), file=sys.stderr, flush=True)
    return error.exit_status


def _log(level: str, text: str) -> None:
    """Print a line as the engine's console does, which is not loaded for a refusal."""
    now_s = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s))
    print(f"{stamp},{int(now_s * 1000) % 1000:03d} {level} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
