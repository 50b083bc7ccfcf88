"""The command line of a job: which options there are, and how words become options and values.

Takes words; gives `Options`, a plain record of what was said. Pure: opens no file,
looks up no class, prints nothing (`streaming.command.command` does the first two). Kinder than
Hadoop in one way: generic options may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mrstream.cluster.errors import UserError

UNRECOGNIZED = "Unrecognized option"
STREAM_JOB, DUMP_TYPED_BYTES, LOAD_TYPED_BYTES = "streamjob", "dumptb", "loadtb"
TOOLS = (STREAM_JOB, DUMP_TYPED_BYTES, LOAD_TYPED_BYTES)


class Option(msgspec.Struct, frozen=True):
    """One option: its value, how often it may be given, what it does.

    `value` is the value's name in usage texts, empty for a flag. `many` takes any
    number of values at a time; of a `first` only the first use counts.
    """

    name: str
    value: str
    says: str
    many: bool = False
    first: bool = False
    instead: str = ""  # the option that replaces it, where it is deprecated


STREAMING_OPTIONS = (
    Option(
        "input", "PATH", "what the maps read: files, directories, globs, comma lists", many=True
    ),
    Option("output", "PATH", "directory for the results; without it they go to stdout", first=True),
    Option("mapper", "COMMAND|CLASS", "the map program; default: the identity", first=True),
    Option("combiner", "COMMAND|CLASS", "runs on the sorted output of each map", first=True),
    Option(
        "reducer",
        "COMMAND|CLASS",
        "the reduce program, NONE or aggregate; default: the identity",
        first=True,
    ),
    Option("partitioner", "CLASS", "which reducer gets a key; default: hash", first=True),
    Option("inputformat", "CLASS", "default: TextInputFormat", first=True),
    Option("outputformat", "CLASS", "default: TextOutputFormat", first=True),
    Option("inputreader", "CLASS[,k=v…]", "a record reader and its settings", first=True),
    Option("numReduceTasks", "N", "number of reducers; 0: maps only", first=True),
    Option("cmdenv", "NAME=VALUE", "a variable for the programs' environment"),
    Option("file", "FILE", "ship a local file or directory", many=True, instead="-files"),
    Option("cacheFile", "URI#LINK", "ship a file", many=True, instead="-files"),
    Option("cacheArchive", "URI#LINK", "ship and unpack", many=True, instead="-archives"),
    Option("jobconf", "NAME=VALUE", "set a property", instead="-D"),
    Option(
        "additionalconfspec", "FILE", "properties from an XML file", first=True, instead="-conf"
    ),
    Option("dfs", "HOST:PORT|local", "the file system", first=True, instead="-fs"),
    Option("io", "NAME", "how programs speak: text, rawbytes, typedbytes, keyonlytext", first=True),
    Option("mapdebug", "COMMAND", "accepted, and never run (as on Hadoop's YARN)", first=True),
    Option("reducedebug", "COMMAND", "accepted, and never run (as on Hadoop's YARN)", first=True),
    Option("lazyOutput", "", "make a part file only when it has a record"),
    Option("background", "", "submit the job and return"),
    Option("verbose", "", "print how the job was understood"),
    Option("debug", "", "accepted for old scripts"),
    Option("info", "", "usage with tips"),
    Option("help", "", "usage"),
)

GENERIC_OPTIONS = (
    Option("conf", "FILE", "properties from an XML file"),
    Option("D", "NAME=VALUE", "set a property"),
    Option("fs", "URI|local", "the file system; local: this machine's disk", first=True),
    Option("jt", "local|HOST:PORT", "local: run on this machine, cluster or not", first=True),
    Option("files", "FILE[#LINK],…", "ship files into the tasks' working directory"),
    Option("archives", "FILE[#LINK],…", "ship archives and unpack them there"),
    Option("libjars", "JAR,…", "refused: mrstream runs no Java", first=True),
    Option("tokenCacheFile", "FILE", "accepted for old scripts", first=True),
)

OWN_OPTIONS = (
    Option("cluster", "FILE", "the cluster.yaml of the cluster to run on", first=True),
    Option("engine", "NAME", "ray, ray://HOST, spark, hadoop: run it there", first=True),
    Option("tasks", "m0,m3-5", "run these map tasks only", first=True),
    Option(
        "env",
        "FILE|DIR",
        "the programs' Python environment: requirements.txt, pyproject.toml, a venv, an archive",
        first=True,
    ),
    Option(
        "as",
        "MAPPER [FORMAT] [NAME=VALUE…]",
        "the mapper and the format of the inputs named since the last -as",
        many=True,
    ),
    Option("overwrite", "", "replace the output of an earlier job"),
    Option("quiet", "", "say nothing but warnings and failures"),
)

# These stand first on the command line and take the rest of it.
OWN_COMMANDS = (
    Option("check", "OPTIONS", "run on a sample, with other splits and combiner passes"),
    Option("repeat", "ATTEMPT", "run a failed attempt again, here, with its input"),
    Option("bisect", "ATTEMPT", "narrow a failed attempt down to the record"),
)

_GENERIC = {option.name for option in GENERIC_OPTIONS}
# Where Hadoop itself takes generic options, before all others, it uses the first of these alone;
# elsewhere it fails, so there they add up.
_LISTS = ("files", "archives")
KNOWN_OPTIONS = {
    option.name: option for option in (*STREAMING_OPTIONS, *GENERIC_OPTIONS, *OWN_OPTIONS)
}


_ASKS_FOR_HELP = frozenset({"-help", "--help", "-info", "--info"})


class BadCommandLine(UserError):
    """The words make no job. `usage` asks for the usage text before the message."""

    usage = False


class NoArguments(BadCommandLine):
    """Nothing was said at all."""


class BadOptionWord(BadCommandLine):
    """An option that is unknown or lacks its value: the usage text follows."""

    usage = True


class Options(msgspec.Struct):
    """What was said, in order. `values` has each option's values, `flags` those without."""

    tool: str = STREAM_JOB
    values: dict[str, list[str]] = {}
    flags: set[str] = set()
    left_over: list[str] = []
    uses: dict[str, int] = {}
    ignored: list[str] = []
    sources: list[tuple[int, list[str]]] = []
    """Of each `-as`: how many values of `-input` stood before it, and its words."""

    def first(self, name: str) -> str | None:
        """Return the value that counts of an option that has one, or None."""
        values = self.values.get(name)
        return values[0] if values else None

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])


def parse(argv: Sequence[str]) -> Options:
    """Cut a command line into options and values, or raise BadCommandLine."""
    if not argv:
        raise NoArguments("No Arguments Given!")
    options = Options()
    words = list(argv)
    if words[0].lower() in TOOLS:
        options.tool = words.pop(0).lower()
    if options.tool != STREAM_JOB:
        options.left_over = words
        return options
    try:
        _Parser(options, words).run()
    except BadOptionWord:
        # Who asks for help gets it, whatever else is wrong.
        asked = _ASKS_FOR_HELP.intersection(words)
        if not asked:
            raise
        options.flags |= {word.lstrip("-") for word in asked}
    return options


def warnings(options: Options) -> Iterator[str]:
    """Yield a line for each deprecated option used, and for those given twice by mistake."""
    for option in STREAMING_OPTIONS:
        if option.instead and option.name in options.uses:
            generic = "generic option " if option.name == "file" else ""
            yield (
                f"-{option.name} option is deprecated, please use "
                f"{generic}{option.instead} instead."
            )
    for name in _LISTS:
        if options.uses.get(name, 0) > 1:
            yield (
                f"-{name} was given {options.uses[name]} times: name all in one, with commas; "
                "Hadoop uses only the first"
            )
    for use in options.ignored:
        yield f"{use} is ignored, as Hadoop does: it repeats an option before any other kind"


def strip_quotes(value: str) -> str:
    """Take one pair of double quotes off a value that has no other inside."""
    if len(value) >= 2 and value[0] == value[-1] == '"' and '"' not in value[1:-1]:
        return value[1:-1]
    return value


def split_paths(value: str) -> list[str]:
    """Cut an `-input` value at its commas, but not at those inside braces."""
    paths, path, depth = [], "", 0
    for character in value:
        if character == "," and depth == 0:
            paths.append(path)
            path = ""
            continue
        depth += (character == "{") - (character == "}")
        depth = max(0, depth)
        path += character
    return [path for path in (*paths, path) if path]


class _Parser:
    """One pass over the words."""

    def __init__(self, options: Options, words: Sequence[str]) -> None:
        self._options = options
        self._words = list(words)
        self._at = 0
        self._leading = True

    def run(self) -> None:
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if word == "--":
                self._options.left_over += self._words[self._at :]
                return
            if word.startswith("-") and word != "-":
                self._take(word)
            else:
                self._options.left_over.append(word)

    def _take(self, word: str) -> None:
        option, joined = _option_of(word)
        if option is None:
            raise BadOptionWord(f"{UNRECOGNIZED}: {word}")
        self._options.uses[option.name] = self._options.uses.get(option.name, 0) + 1
        if not option.value:
            self._leading = False
            self._options.flags.add(option.name)
            return
        values = [joined] if joined is not None else self._following(option)
        if not values:
            raise BadOptionWord(f"Missing argument for option: {option.name}")
        self._leading = self._leading and option.name in _GENERIC
        if option.name == "as":
            named = len(self._options.values.get("input", ()))
            self._options.sources.append((named, [strip_quotes(value) for value in values]))
        stored = self._options.values.setdefault(option.name, [])
        if stored and option.name in _LISTS and self._leading:
            self._options.ignored.append(f"-{option.name} {values[0]}")
        elif not (option.first and stored):
            stored += [strip_quotes(value) for value in values]

    def _following(self, option: Option) -> list[str]:
        """Return the words that are this option's values; the name of an option never is."""
        values = []
        while self._at < len(self._words) and _option_of(self._words[self._at])[0] is None:
            if self._words[self._at] == "--":
                break
            values.append(self._words[self._at])
            self._at += 1
            if not option.many:
                break
        return values


def _option_of(word: str) -> tuple[Option | None, str | None]:
    """Return the option that a word names, and the value that is joined to it."""
    if not word.startswith("-"):
        return None, None
    name = word[2:] if word.startswith("--") else word[1:]
    if name in KNOWN_OPTIONS:
        return KNOWN_OPTIONS[name], None
    before, equals, value = name.partition("=")
    if equals and before in _GENERIC:
        return KNOWN_OPTIONS[before], value
    # -Dname=value; a word such as -Debug that sets nothing is somebody's typing mistake.
    if name.startswith("D") and equals:
        return KNOWN_OPTIONS["D"], name[1:]
    return None, None
