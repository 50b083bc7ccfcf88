"""The user's program: its words, where it is found, and the environment it gets.

Takes command lines, properties and directories; gives argument lists and
environments. Starts no process itself: the pumping of bytes is the engine's.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Mapping, Sequence

from mrstream.cluster.errors import UserError
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.conf.properties import deprecated_names, from_wire, plain_defaults
from mrstream.streaming.task.shipping import Shipped

# The kernel refuses a longer `NAME=value`, and the program with it.
ENVIRONMENT_STRING_BYTES_MAX = 128 * 1024 - 1
SHELL = "/bin/sh"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]")


class ProgramNotFound(UserError):
    """No file of the command's first word, neither in the working directory nor on PATH."""


class EmptyCommand(UserError):
    """A command without a single word."""


def parse_command(command: str) -> list[str]:
    """Cut a command into words as Hadoop does: no shell, no escapes, only blanks separate.

    A quote, opening or closing, ends the word so far; inside one kind of quote the
    other is an ordinary character. Empty words vanish.
    """
    words: list[str] = []
    word: list[str] = []
    quote = ""
    for character in from_wire(command):
        if quote:
            ends = character == quote
        else:
            ends = character in " '\""
        if not ends:
            word.append(character)
            continue
        if word:
            words.append("".join(word))
            word = []
        quote = "" if quote or character == " " else character
    if word:
        words.append("".join(word))
    return words


def find_program(argv: Sequence[str], cwd: str, path: str) -> list[str]:
    """Return the words to execute: an absolute program, with its interpreter if it needs one.

    An absolute first word is used as it is. Any other is made executable in the
    working directory and looked for there, then along `path`; to be found, a file
    need only be readable.
    """
    if not argv:
        raise EmptyCommand("the command is empty; it needs at least the name of a program")
    program = argv[0]
    if not os.path.isabs(program):
        _make_executable(os.path.join(cwd, program))
        program = _first_readable(program, [cwd, *path.split(os.pathsep)])
        if not program:
            raise ProgramNotFound(cannot_run(argv[0], errno.ENOENT))
    return [*_interpreter(program, path), program, *argv[1:]]


def cannot_run(program: str, error: int) -> str:
    """Return Hadoop's words for a program that the system does not run."""
    return (
        f'Error in configuring object: Cannot run program "{program}": '
        f"error={error}, {os.strerror(error)}"
    )


def resolve_words(argv: Sequence[str], shipped: Sequence[Shipped]) -> list[str]:
    """Return the words, with paths of the client's that do not work here replaced by links.

    A word that names a shipped file by a path that this host does not have (or by
    one that leads out of the working directory) means the file that was shipped.
    """
    links = {from_wire(item.word): from_wire(item.link) for item in shipped if item.word}
    words = [links[word] if word in links and not _works(word) else word for word in argv]
    if words and words[0] in links and not os.access(words[0], os.X_OK):
        words[0] = links[words[0]]
    return words


def _works(word: str) -> bool:
    return os.path.isabs(word) and os.path.exists(word)


def _make_executable(path: str) -> None:
    """Add the run bits, for the task alone: a link's file is copied first, never changed."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) or os.access(path, os.X_OK):
            return
        if os.path.islink(path):
            _replace_link_by_copy(path)
        os.chmod(path, stat.S_IMODE(mode) | 0o111)
    except OSError:
        return  # as Hadoop: a program that cannot run says so itself in a moment


def _replace_link_by_copy(link: str) -> None:
    with open(link, "rb") as source:
        os.unlink(link)
        with open(link, "xb") as copy:
            while block := source.read(1 << 20):
                copy.write(block)


def _first_readable(name: str, directories: Sequence[str]) -> str:
    for directory in directories:
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path) and os.access(path, os.R_OK):
            return os.path.abspath(path)
    return ""


def _interpreter(program: str, path: str) -> list[str]:
    """Return what must stand before a program: nothing, Python, or the shell.

    The kernel runs what has a `#!` line or is a binary. Text without `#!` goes to the
    shell, as Java does it; a `.py` that cannot run by itself goes to Python.
    """
    try:
        with open(program, "rb") as f:
            head = f.read(512)
    except OSError:
        return []
    runs_by_itself = head.startswith(b"#!")
    if program.endswith(".py") and not (runs_by_itself and os.access(program, os.X_OK)):
        return [_first_readable("python3", path.split(os.pathsep)) or "python3"]
    if runs_by_itself or b"\0" in head:
        return []
    return [SHELL]


# --- environment


def task_environment(
    conf: JobConf,
    base: Mapping[str, str],
    task_properties: Mapping[str, str],
    tmpdir: str,
) -> dict[str, str]:
    """Return the environment of a command.

    Over `base`: every property of the job, those that the task itself sets (also
    under their old names), the words of `-cmdenv`, and TMPDIR.
    """
    environment = dict(base)
    # A Python program that flushes each line is two to five times slower; one that
    # wants it can ask for it with -cmdenv.
    environment.pop("PYTHONUNBUFFERED", None)
    limit = conf.environment_value_length_max
    environment |= _plain_variables(limit)
    for name, value in conf.own_items():
        _put(environment, name, value, limit)
    old_names = _old_names()
    for name, portable in task_properties.items():
        value = from_wire(portable)
        _put(environment, name, value, limit)
        for old_name in old_names.get(name, ()):
            _put(environment, old_name, value, limit)
    environment.update(parse_cmdenv(conf.added_environment))
    environment["TMPDIR"] = tmpdir
    return environment


@functools.lru_cache(maxsize=4)
def _plain_variables(limit: int) -> dict[str, str]:
    """Return the variables that every job's tasks have: a thousand of them, made once."""
    environment: dict[str, str] = {}
    for name, value in plain_defaults().items():
        _put(environment, name, value, limit)
    return environment


def parse_cmdenv(words: str) -> dict[str, str]:
    """Return the variables of all `-cmdenv` values; a value ends at its first blank."""
    pairs = (word.partition("=") for word in words.split(" "))
    return {name: value for name, equals, value in pairs if equals and name}


@functools.lru_cache(maxsize=4096)
def variable_name(property_name: str) -> str:
    """Return the variable of a property: what is not a letter or digit becomes `_`."""
    return _NOT_IN_NAMES.sub("_", property_name)


def _put(environment: dict[str, str], name: str, value: str, limit: int) -> None:
    if limit > -1:
        value = value[:limit]
    variable = variable_name(name)
    if len(value) * 4 + len(variable) >= ENVIRONMENT_STRING_BYTES_MAX:
        value = _cut(value, ENVIRONMENT_STRING_BYTES_MAX - len(variable) - 1)
    if variable and "\0" not in value:
        environment[variable] = value


def _cut(value: str, bytes_max: int) -> str:
    encoded = value.encode("utf-8", "surrogateescape")
    return encoded[:bytes_max].decode("utf-8", "ignore") if len(encoded) > bytes_max else value


@functools.cache
def _old_names() -> dict[str, list[str]]:
    """Return the old names of every new one."""
    names: dict[str, list[str]] = {}
    for old, new in deprecated_names().items():
        names.setdefault(new, []).append(old)
    return names
