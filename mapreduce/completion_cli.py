"""`mrstream completion bash | zsh | man`: words that a shell completes, and a manual page.

Made from the tables that the commands themselves are read by, so that nothing is missing here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence

from mrstream.cluster.hosts import arguments
from mrstream.cluster.version import version
from mrstream.dfs.shell.verbs import VERBS
from mrstream.mapreduce.client.job_questions_cli import USAGE as JOB_USAGE
from mrstream.streaming.command import usage
from mrstream.streaming.command.options import (
    GENERIC_OPTIONS,
    OWN_COMMANDS,
    OWN_OPTIONS,
    STREAMING_OPTIONS,
    Option,
)

USAGE = """usage: mrstream completion bash|zsh|man

  eval "$(mrstream completion bash)"        in ~/.bashrc: Tab completes commands, verbs and options
  eval "$(mrstream completion zsh)"         in ~/.zshrc
  mrstream completion man > mrstream.1      a manual page: man ./mrstream.1"""

_BASH = """\
_mrstream() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words
    case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
        "1 "*) words="{first}" ;;
{cases}
        *) words="{options}" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _mrstream mrstream
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def main(argv: Sequence[str]) -> int:
    """Print what is asked for; return the exit status."""
    made = {"bash": bash, "zsh": lambda: _ZSH + bash(), "man": manual}
    if len(argv) != 1 or argv[0] not in made:
        asked = list(argv) in (["--help"], ["-h"], ["-help"])
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    sys.stdout.write(made[argv[0]]())
    return 0


def bash() -> str:
    """Return the script that bash reads."""
    options = [f"-{option.name}" for option in _options()]
    verbs = {
        "dfs": [f"-{name}" for name in VERBS],
        "cluster": _cluster_commands(),
        "job": re.findall(r"mrstream job (-[a-z-]+)", JOB_USAGE),
        "completion": ["bash", "zsh", "man"],
    }
    cases = [
        f'        "2 {name}") words="{" ".join(dict.fromkeys(words))}" ;;\n'
        f'        *" {name}") words="" ;;'
        for name, words in verbs.items()
    ]
    first = [*_commands(), *options]
    return _BASH.format(first=" ".join(first), cases="\n".join(cases), options=" ".join(options))


def manual() -> str:
    """Return the manual page, in the language of man."""
    lines = [
        f'.TH MRSTREAM 1 "" "mrstream {version()}" "User Commands"',
        ".SH NAME",
        _roff("mrstream - Hadoop Streaming without Hadoop"),
        ".SH SYNOPSIS",
        _roff("mrstream -input PATH -output PATH -mapper COMMAND -reducer COMMAND [options]"),
        ".br",
        _roff("mrstream COMMAND …"),
        ".SH COMMANDS",
        *_entries(re.findall(r"mrstream ([a-z0-9-]+ ?(?:[A-Z]+|…)?) {2,}(.+)", usage.SHORT)),
        ".SH OPTIONS",
        *_entries((f"-{each.name} {each.value}".rstrip(), each.says) for each in _options()),
        ".SH EXIT STATUS",
        _roff("0 done; 1 the job failed or was refused; 5 input or output is wrong"),
        ".SH ENVIRONMENT",
        *_entries([
            ("MRSTREAM_HOME", "where state is kept, ~/.mrstream if it is not set"),
            ("MRSTREAM_CLUSTER", "the cluster to use: a file or a name"),
        ]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _entries(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [line for head, says in pairs for line in (".TP", f"\\fB{_roff(head)}\\fR", _roff(says))]


def _roff(text: str) -> str:
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _options() -> tuple[Option, ...]:
    return (*STREAMING_OPTIONS, *GENERIC_OPTIONS, *OWN_OPTIONS, *OWN_COMMANDS)


def _commands() -> list[str]:
    return list(dict.fromkeys(re.findall(r"mrstream ([a-z][a-z0-9-]*)", usage.SHORT)))


def _cluster_commands() -> list[str]:
    for action in arguments.parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices)
    raise AssertionError("mrstream cluster has commands")
