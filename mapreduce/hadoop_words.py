"""What Hadoop's command lines mean here: `hadoop`, `hdfs`, `mapred` and `yarn`, word by word.

Takes the name of a command and its words; gives the words of `mrstream`, or says by name what needs
Java. Also turns the lines of our console into those of Hadoop's, which other programs read for job
ids and counters. Pure: starts nothing, reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from mrstream.cluster.errors import UserError

COMMANDS = ("hadoop", "hdfs", "mapred", "yarn")
HADOOP_VERSION = "3.4.1"
"""The version whose command lines, lines and counters these are."""
JAR = f"hadoop-streaming-{HADOOP_VERSION}.jar"
_STREAMING_JAR = re.compile(r"streaming[^/]*\.jar$")
_HDFS = re.compile(r"(?:hdfs|viewfs)://[^/,#\s]*(?=/)")
_OLD_VERBS = {"-lsr": ["-ls", "-R"], "-rmr": ["-rm", "-r"], "-dus": ["-du", "-s"]}
_QUOTAS = frozenset(("-setQuota", "-clrQuota", "-setSpaceQuota", "-clrSpaceQuota"))
"""What of `dfsadmin` is a verb of the dfs here."""
# Of `hadoop jar`: the options whose values are paths, or lists of them.
_PATHS = frozenset(
    ("-input", "-output", "-files", "-archives", "-cacheFile", "-cacheArchive", "-file")
)
_INSTEAD = {
    "distcp": "`mrstream dfs -cp` copies",
    "archive": "put a tar file there with `mrstream dfs -put`",
    "dfsadmin": "`mrstream cluster status` and `mrstream dfs -df` tell; of quotas, "
    "`-setQuota`, `-clrQuota`, `-setSpaceQuota` and `-clrSpaceQuota` are here",
    "namenode": "`mrstream cluster up` starts the dfs",
    "datanode": "`mrstream cluster up` starts the dfs",
    "resourcemanager": "`mrstream cluster up` starts the masters",
    "nodemanager": "`mrstream cluster up` starts the workers",
    "balancer": "the dfs balances itself",
    "historyserver": "`mrstream job -history` tells of old jobs",
    "rmadmin": "`mrstream cluster` looks after hosts",
    "node": "`mrstream cluster status` lists hosts",
    "queue": "there is one queue",
    "jar": "only the streaming jar means something here: mrstream runs no Java",
}


class NeedsJava(UserError):
    """A Hadoop command that is a Java program of its own."""

    exit_status = 1


class Places(msgspec.Struct, frozen=True):
    """What `hdfs://…` means: a URL or path that goes before the path of the old one."""

    shell: str
    """For the verbs of `fs`; empty: a path of the current cluster."""
    job: str
    """For the options of a job."""
    is_local: bool = False
    """There is no cluster: this machine's disk is meant."""


class Meant(msgspec.Struct, frozen=True):
    """What to do: `kind` says how, `words` are mrstream's."""

    kind: str
    """`run` the command; run a `job` and retell its lines; say the `version`; list `applications`,
    or show one (`application`)."""
    words: tuple[str, ...] = ()


def meaning_of(command: str, argv: Sequence[str], places: Places) -> Meant:
    """Return what a Hadoop command line means; `NeedsJava` if it means nothing here."""
    words = _without_config(argv)
    verb = words[0] if words else ""
    rest = words[1:]
    if command == "yarn":
        return _yarn(verb, rest, places)
    if verb in ("version", "-version", "--version"):
        return Meant("version")
    if verb in ("fs", "dfs") and command in ("hadoop", "hdfs"):
        return Meant("run", ("dfs", *_local(places), *_fs_words(rest, places)))
    if verb == "dfsadmin" and command in ("hadoop", "hdfs") and rest[:1] and rest[0] in _QUOTAS:
        return Meant("run", ("dfs", *_local(places), *_fs_words(rest, places)))
    if verb == "fsck" and command in ("hadoop", "hdfs"):
        return Meant(
            "run", ("dfs", *_local(places), "-fsck", *(_place(word, places.shell) for word in rest))
        )
    if verb == "job" and command in ("hadoop", "mapred"):
        return Meant("run", ("job", *map(_job_word, rest)))
    if verb == "streaming" and command == "mapred":
        return Meant("job", tuple(_job_words(rest, places)))
    if verb == "jar" and command == "hadoop" and rest and _STREAMING_JAR.search(rest[0]):
        return Meant("job", tuple(_job_words(rest[1:], places)))
    raise _needs_java(command, verb)


def _yarn(verb: str, rest: Sequence[str], places: Places) -> Meant:
    if verb == "version":
        return Meant("version")
    if verb == "jar" and rest and _STREAMING_JAR.search(rest[0]):
        return meaning_of("hadoop", ["jar", *rest], places)
    if verb in ("application", "app"):
        if rest[:1] == ["-list"]:
            return Meant("applications", tuple(rest[1:]))
        if len(rest) == 2 and rest[0] == "-kill":
            return Meant("run", ("job", "-kill", _job_word(rest[1])))
        if len(rest) == 2 and rest[0] == "-status":
            return Meant("application", (_job_word(rest[1]),))
    if verb == "logs" and "-applicationId" in rest[:-1]:
        application = rest[list(rest).index("-applicationId") + 1]
        return Meant("run", ("job", "-logs", _job_word(application)))
    raise _needs_java("yarn", " ".join([verb, *rest[:1]]) if verb else verb)


def _needs_java(command: str, verb: str) -> NeedsJava:
    if not verb:
        return NeedsJava(
            f"usage: {command} VERB …\nwith the verbs that mean something without Java: hadoop "
            "fs | jar STREAMING.jar | job | version, hdfs dfs | fsck, mapred streaming | job, yarn "
            "application -list | -status | -kill, yarn logs"
        )
    instead = _INSTEAD.get(verb.split()[0], "see `mrstream -help`")
    return NeedsJava(f"{command} {verb} is not here, since mrstream has no Java: {instead}")


def _without_config(argv: Sequence[str]) -> list[str]:
    """Drop what stands before the verb: --config DIR, --loglevel LEVEL."""
    words = list(argv)
    while words and words[0] in ("--config", "--loglevel"):
        del words[:2]
    return words


def _local(places: Places) -> tuple[str, ...]:
    """Return the words that say that this machine's disk is meant."""
    return ("-fs", "local") if places.is_local else ()


def _fs_words(words: Sequence[str], places: Places) -> Iterator[str]:
    for at, word in enumerate(words):
        if at == 0 and word in _OLD_VERBS:
            yield from _OLD_VERBS[word]
        else:
            yield _place(word, places.shell)


def _job_words(words: Sequence[str], places: Places) -> Iterator[str]:
    takes_paths = False
    for word in words:
        if word.startswith("-"):
            takes_paths = word in _PATHS
            yield word
        else:
            yield _place(word, places.job) if takes_paths else word


def _place(word: str, before: str) -> str:
    """Return a word with its `hdfs://HOST:PORT` replaced; a path that has been here stays."""
    return _HDFS.sub("" if before and f"{before}/" in word else before, word)


def _job_word(word: str) -> str:
    """Return the id of a job for that of its application."""
    return re.sub(r"^application_", "job_", word)


# --- lines

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (INFO|WARN|ERROR) (.*)", re.DOTALL)
_LOGGERS = (
    ("Total input files", "mapred.FileInputFormat"),
    ("number of splits", "mapreduce.JobSubmitter"),
    ("Submitting tokens", "mapreduce.JobSubmitter"),
    ("Output directory", "streaming.StreamJob"),
    ("Error Launching", "streaming.StreamJob"),
    ("Job not successful", "streaming.StreamJob"),
)


def retold(line: str, url_of: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines that Hadoop prints where our console prints this one: each names its logger.
    `url_of` makes the `hdfs://` URL of an output directory."""
    found = _LINE.fullmatch(line)
    if found is None:
        yield line
        return
    at, level, text = found.groups()
    logger = next((name for start, name in _LOGGERS if text.startswith(start)), "mapreduce.Job")
    if text.startswith("Output directory: "):
        text = f"Output directory: {url_of(text.removeprefix('Output directory: '))}"
    if text.startswith("Running job: job_") and "local" not in text:
        application = text.removeprefix("Running job: job_")
        yield f"{at} INFO impl.YarnClientImpl: Submitted application application_{application}"
    yield f"{at} {level} {logger}: {text}"
