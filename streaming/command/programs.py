"""A look at the programs of a job before it starts: what cannot run is said now, not by its tasks.

Takes a command; gives lines for the log, or raises NoSuchProgram. Looks whether files are there and
how their first lines end; reads nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

from mrstream.streaming.command.command import StreamingCommand
from mrstream.streaming.command.options import BadCommandLine
from mrstream.streaming.task.child import parse_command
from mrstream.streaming.task.shipping import local_path

_SCRIPT_SUFFIXES = (
    ".awk",
    ".bash",
    ".js",
    ".lua",
    ".php",
    ".pl",
    ".py",
    ".R",
    ".rb",
    ".sed",
    ".sh",
)
_INTERPRETERS = re.compile(
    r"(ba|da|z|k)?sh|python[0-9.]*|pypy[0-9.]*|perl|ruby|node|Rscript|lua|php"
)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SHELL_SIGNS = ("|", "||", "&&", ">", ">>", "<", ";", "&", "2>&1", "2>")
_HEAD_BYTES = 4096


class NoSuchProgram(BadCommandLine):
    """A command names a script that no task will find."""


def check_programs(command: StreamingCommand, *, on_cluster: bool) -> Iterator[str]:
    """Yield what is odd about the job's commands; NoSuchProgram for a script that is nowhere."""
    roles = {"mapper": command.mapper, "combiner": command.combiner, "reducer": command.reducer}
    said = [(f"-{role}", program.command) for role, program in roles.items() if program]
    said += [("-as", source.mapper.command) for source in command.sources]
    for option, text in dict.fromkeys(said):
        if parse_command(text):
            yield from _shell_signs(option, text)
            yield from _missing(option, text, command, on_cluster=on_cluster)
    for item in command.shipped:
        path = local_path(item.source)
        if path is not None and not item.archive and _has_windows_line_ends(path):
            name = item.word or path
            yield (
                f"{name} has Windows line ends (CRLF), which its interpreter may take for "
                f"part of names and commands: `sed -i 's/\\r$//' {name}` mends it"
            )


def _shell_signs(option: str, text: str) -> Iterator[str]:
    signs = [word for word in _QUOTED.sub("''", text).split(" ") if word in _SHELL_SIGNS]
    if signs:
        first = parse_command(text)[0]
        yield (
            f"{option} {text!r}: no shell is at work, so {signs[0]} and what follows are words for "
            f"{first}; write {option} \"bash -c '{text}'\""
        )


def _missing(
    option: str, text: str, command: StreamingCommand, *, on_cluster: bool
) -> Iterator[str]:
    """Look for the script that a command begins with, bare or behind its interpreter."""
    words = parse_command(text)
    behind = len(words) > 1 and _INTERPRETERS.fullmatch(os.path.basename(words[0])) is not None
    script = words[1] if behind else words[0]
    if not script.endswith(_SCRIPT_SUFFIXES) or _is_there(script, command):
        return
    looked = "it is not here, and -files and -archives ship nothing of that name"
    if os.path.isabs(script):
        if on_cluster:
            return  # hosts may have what this machine has not
        looked = "there is no such file"
    elif not behind and os.sep not in script:
        if shutil.which(script) is not None:
            return
        if on_cluster:
            yield f"{option} {text!r}: {script}: {looked}; every host needs it on its PATH"
            return
        looked += ", and it is not on the PATH"
    raise NoSuchProgram(f"{option} {text!r}: {script}: {looked}")


def _is_there(script: str, command: StreamingCommand) -> bool:
    """Whether tasks find the script: shipped, below something that is, or on this machine."""
    if os.path.isabs(script):
        return os.path.exists(script)
    path = os.path.normpath(script)
    links = {os.path.normpath(item.link) for item in command.shipped}
    return any(path == link or path.startswith(f"{link}{os.sep}") for link in links)


def _has_windows_line_ends(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False  # shipping it will say why
    is_script = head.startswith(b"#!") or path.endswith((".sh", ".bash"))
    return is_script and head.partition(b"\n")[0].endswith(b"\r")
