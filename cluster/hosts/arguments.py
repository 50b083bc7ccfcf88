"""The words of `mrstream cluster`: commands, options, and what `--help` says of them."""

from __future__ import annotations

import argparse
import os

from mrstream.cluster.config.config import CELL_MARK, DFS_MASTER, GROUP_NAMES, ROLES

_EXIT = "exit status: 0 done; 1 not done, and why is said; 2 wrong words; 130 interrupted"
_FILE = "the cluster file, or the name of a known cluster (default: %s)"
_FILE_HERE = "cluster.yaml here, else the current cluster"
_FILE_CURRENT = "the current cluster, else cluster.yaml here"


def parser() -> argparse.ArgumentParser:
    """Return the parser; what it gives has the command's name in `command`."""
    made = argparse.ArgumentParser(
        prog="mrstream cluster",
        description="Start, stop and look after a cluster of hosts.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"""\
first steps:
  mrstream cluster up            with a cluster.yaml such as
                                   name: lab
                                   hosts: {{node[01-05]: {{}}}}
  mrstream cluster status
  mrstream cluster down

`mrstream cluster COMMAND --help` tells more. The guide: docs/guide/cluster.md
{_EXIT}""",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND", dest="command")
    verbs = (_up, _down, _status, _logs, _doctor, _switch, _add, _remove, _join, _restore, _backup)
    for add in (*verbs, _ca):
        add(commands)
    return made


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the words of a command line; wrong ones end the process with status 2, as argparse
    does."""
    return parser().parse_args(_tell_follow_from_file(argv))


def _tell_follow_from_file(argv: list[str]) -> list[str]:
    """For `logs`, -f alone means follow, as with tail; -f FILE.yaml names the cluster, as
    everywhere else."""
    if argv[:1] != ["logs"]:
        return argv
    words: list[str] = []
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        names_file = following.endswith((".yaml", ".yml")) or os.path.isfile(following)
        words.append("--follow" if word == "-f" and not names_file else word)
    return words


# --- the commands

_Commands = argparse._SubParsersAction  # argparse has no public name for it


def _command(
    commands: _Commands[argparse.ArgumentParser],
    name: str,
    summary: str,
    more: str = "",
    default_file: str = _FILE_CURRENT,
) -> argparse.ArgumentParser:
    made = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"{more}\n{_EXIT}".lstrip(),
    )
    made.add_argument("-f", "--file", help=_FILE % default_file)
    return made


def _up(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "up",
        "start what is not running on every host, and make the cluster current",
        """\
A host that fails is named with its reason, and the cluster comes up without it
(status 0) unless it is the master's (status 1, and nothing is left running). If
half of the hosts or more fail, what came up stays, and the status is 1 unless
--partial asks for that. Running it again starts what is missing and leaves the
rest alone. Hosts that do not reach a package index get all they need from here.

examples:
  mrstream cluster up
  mrstream cluster up -f lab.yaml
  mrstream cluster up --without h3     h3 is lost: found the group of masters without it
""",
        default_file=_FILE_HERE,
    )
    made.add_argument(
        "--partial", action="store_true", help="status 0 though half of the hosts or more failed"
    )
    made.add_argument(
        "--new-secret",
        action="store_true",
        help="give the cluster, which must be down, another secret: the old one opens nothing more",
    )
    boot = made.add_mutually_exclusive_group()
    boot.add_argument(
        "--at-boot",
        action="store_const",
        const=True,
        dest="at_boot",
        help="hosts that are rebooted start everything themselves, by a line in the crontab there; "
        "`down` takes it out",
    )
    boot.add_argument(
        "--no-at-boot", action="store_const", const=False, dest="at_boot", help="take it out now"
    )
    made.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="HOST",
        help="a host of `masters:` that does not answer has no group: say so only of one that is "
        "lost for good, or was never up",
    )


def _down(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "down",
        "stop everything, and prove that no process is left",
        """\
The data stays, and `mrstream cluster up` brings everything back.

examples:
  mrstream cluster down
  mrstream cluster down --purge        asks for the cluster's name first
""",
    )
    made.add_argument("--purge", action="store_true", help="also remove all data, after asking")
    made.add_argument("--yes", action="store_true", help="do not ask")


def _status(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "status",
        "show every role on every host",
        """\
up: it answers; starting: it answers but is not ready; down: its host answers,
but nobody listens; dead: no answer at all. Status 1 if a role is down or dead;
ask `mrstream cluster doctor` whether all is well.

examples:
  mrstream cluster status
  mrstream cluster status --json | jq .chunks.under_replicated
""",
    )
    made.add_argument("--json", action="store_true", help="for programs; keys as in the guide")


def _logs(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "logs",
        "show the logs of a host",
        f"""\
ROLE is one of {", ".join(ROLES)};
dfs.master@CELL is the master of a cell.

examples:
  mrstream cluster logs node02
  mrstream cluster logs node02 dfs.chunkserver -f
  mrstream cluster logs node01 dfs.master --rpc -n 1000
""",
    )
    made.add_argument("host", metavar="HOST")
    made.add_argument(
        "role",
        nargs="?",
        type=_role,
        metavar="ROLE",
        help="only its log (default: all)",
    )
    made.add_argument(
        "-n", "--lines", type=_count, default=100, help="the last so many lines (100)"
    )
    made.add_argument("--rpc", action="store_true", help="the log of requests instead")
    made.add_argument(
        "--audit", action="store_true", help="who did what through the gateway instead"
    )
    made.add_argument("--follow", action="store_true", help="(-f) go on showing what is added")


def _doctor(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "doctor",
        "say what is wrong, and what to do about it",
        "Changes nothing. Status 0: all is well; 1: something is wrong.\n",
    )
    made.add_argument("--json", action="store_true", help="for programs: {name, findings}")


def _switch(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "switch",
        "let another host of `masters:` lead, for example before a host is taken down",
        """\
The leader falls silent until HOST has all that it has; then HOST leads, in
well under a second. Where that fails the old leader goes on, and says why.

example:
  mrstream cluster switch h2 lock
""",
    )
    made.add_argument("host", metavar="HOST")
    groups = " or ".join(GROUP_NAMES.values())
    made.add_argument(
        "group", metavar="GROUP", type=_group, help=f"{groups}; dfs@CELL for a cell's"
    )


def _role(text: str) -> str:
    """A role; of a dfs master's also that of a cell."""
    if text not in ROLES and not text.startswith(DFS_MASTER + CELL_MARK):
        raise argparse.ArgumentTypeError(f"{text!r} is no role: {', '.join(ROLES)}")
    return text


def _group(text: str) -> str:
    """A group; of the dfs also that of a cell."""
    groups = GROUP_NAMES.values()
    if text not in groups and not text.startswith(GROUP_NAMES[DFS_MASTER] + CELL_MARK):
        raise argparse.ArgumentTypeError(f"{text!r} is no group: {', '.join(groups)}")
    return text


def _add(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "add",
        "bring up a host that was added to the cluster file",
        """\
It gets new chunks and tasks at once, and old chunks slowly.

example:
  mrstream cluster add node06          after writing node06 into cluster.yaml
""",
        default_file=_FILE_HERE,
    )
    made.add_argument("host", metavar="HOST")


def _remove(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "remove",
        "copy everything off a host, then take it out of the cluster",
        """\
At no moment has a chunk fewer good replicas than before. Take the host out of
your cluster file as well.

examples:
  mrstream cluster remove node02
  mrstream cluster remove node02 --lost     its disks are gone, or the machine
""",
    )
    made.add_argument("host", metavar="HOST")
    made.add_argument(
        "--lost",
        action="store_true",
        help="it will not come back: do not log in, restore what it held from other replicas",
    )


def _join(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "join",
        "fetch cluster file and secret over SSH, and make the cluster current",
        """\
Whoever may log in to a host of the cluster as the user of its daemons may use
the cluster.

examples:
  mrstream cluster join alice@node01
  mrstream cluster join -f cluster.yaml
""",
        default_file="none: give a host instead",
    )
    made.add_argument("target", nargs="?", metavar="[USER@]HOST", help="a host of the cluster")
    made.add_argument("--name", help="the cluster's name, if the host has several")
    made.add_argument("--dir", default="~/.mrstream", help="the cluster's dir there (%(default)s)")


def _ca(commands: _Commands[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "ca",
        "print the authority that vouches for the cluster's gateways",
        """\
It vouches for the names and addresses of this cluster's hosts only. Programs and
browsers that are given it know a gateway from an impostor.

examples:
  mrstream cluster ca > lab.pem
  curl --cacert lab.pem https://node01:7730/healthz
""",
    )


def _restore(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "restore",
        "bring the masters up from the copy of their log that goes furthest, here or elsewhere",
        """\
For when the master's host is gone for good (HOST is another one), or its log is
gone, cut or old (HOST is its own). Of all logs that any host has, the one that
goes furthest is used; the one that it replaces is kept aside. Jobs that were
running have to be submitted again. With several masters it is for a majority that
is lost for good: anything less, `mrstream cluster up` brings back whole.

examples:
  mrstream cluster restore --master node03
  mrstream cluster restore --master node01 --from node02
  mrstream cluster restore --master node01 --from /backups/lab-20260131-235959
""",
    )
    made.add_argument("--master", required=True, metavar="HOST", help="where the masters will run")
    made.add_argument(
        "--from",
        dest="source",
        metavar="HOST|BACKUP",
        help="whose log counts, whatever others have beyond it, or a backup of `cluster backup`; "
        "what it replaces is kept aside",
    )
    made.add_argument("--yes", action="store_true", help="do not ask before changes are given up")


def _backup(commands: _Commands[argparse.ArgumentParser]) -> None:
    made = _command(
        commands,
        "backup",
        "bring the logs of all masters to this machine: names, locks, where chunks are",
        """\
Nothing is stopped for it. DIR gets a directory NAME-DATE-TIME, whole and proven or
not at all; the oldest go. It holds the cluster's secret: keep it as one. The bytes
of files are not in it: chunks have replicas.

examples:
  mrstream cluster backup /backups
  mrstream cluster restore --master node01 --from /backups/lab-20260131-235959
""",
    )
    made.add_argument("directory", metavar="DIR")
    made.add_argument(
        "--keep", type=_count, default=7, help="the last so many stay in DIR (%(default)s)"
    )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, 1 or more")
    return int(text)
