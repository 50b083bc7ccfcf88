"""Streaming jobs drawn at random: options × formats × data, the same ones for the same seed.

Every job is one that Hadoop promises an outcome for, but for the order of equal keys: so inputs are
named file by file (a local directory has no order), comparators end in the whole key, and numbers
are compared only where there are numbers.
"""

from __future__ import annotations

import bz2
import gzip
from dataclasses import dataclass, field
from random import Random

LIB = "org.apache.hadoop.mapred.lib."
OLD = "org.apache.hadoop.mapred."
TEXT = "org.apache.hadoop.io.Text"
LONG = "org.apache.hadoop.io.LongWritable"
WORDS = [b"a", b"b", b"ab", b"key", b"Zeta", b"\xc3\xa9t\xc3\xa9", b"x.y", b"007", b"", b"caf\xe9"]


@dataclass
class Job:
    """One job: its words, with {in} for the input directory and {out}, and its input files."""

    name: str
    words: list[str] = field(default_factory=list)
    inputs: dict[str, bytes] = field(default_factory=dict)
    compare: str = "ties"
    tie_key: str = r"^([^\t]*)"

    def define(self, name: str, value: object) -> None:
        """Add a property, in front of all options."""
        self.words[:0] = ["-D", f"{name}={value}"]


def draw(seed: int, number: int) -> Job:
    """Give the job of this number of a seed."""
    random = Random(f"{seed}/{number}")
    job = Job(f"seed {seed} job {number}")
    kind = random.choice(["text"] * 6 + ["kv", "nline", "combine", "fixed", "builtin", "binary"])
    unique = random.random() < 0.5
    _input(random, job, kind, unique=unique)
    if kind == "builtin":
        _builtin(random, job)
    elif kind == "binary":
        _binary(random, job)
    else:
        _commands(random, job, is_text=kind != "fixed")
    _output(random, job, unique=unique and kind in ("text", "kv"))
    return job


def _input(random: Random, job: Job, kind: str, *, unique: bool) -> None:
    for number in range(random.randint(1, 3)):
        name, pack = random.choice([("f", bytes)] * 4 + [("f.gz", _gzip), ("f.bz2", bz2.compress)])
        if kind == "nline":
            name, pack = "f", bytes
        lines = random.choice([0, 1, 3, 20, 60])
        if kind == "fixed":
            data = random.randbytes(7 * lines).translate(bytes(97 + at % 26 for at in range(256)))
        else:
            end = random.choice([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
            rows = [_line(random, number * 1000 + at if unique else None) for at in range(lines)]
            data = end.join(rows) + (end if random.random() < 0.8 else b"")
        job.inputs[f"{number}{name}"] = pack(data)
        job.words += ["-input", f"{{in}}/{number}{name}"]
    job.words += ["-output", "{out}"]
    if random.random() < 0.4 and kind != "combine":
        job.define("fs.local.block.size", random.choice([50, 100, 333]))
    formats = {
        "kv": OLD + "KeyValueTextInputFormat", "nline": LIB + "NLineInputFormat",
        "combine": LIB + "CombineTextInputFormat", "fixed": OLD + "FixedLengthInputFormat",
    }  # fmt: skip
    if kind in formats:
        job.words += ["-inputformat", formats[kind]]
    if kind == "nline":
        job.define("mapreduce.input.lineinputformat.linespermap", random.choice([1, 3, 10]))
    if kind == "combine" and random.random() < 0.7:
        job.define("mapreduce.input.fileinputformat.split.maxsize", random.choice([40, 100, 1000]))
    if kind == "fixed":
        job.define("fixedlengthinputformat.record.length", 7)


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _line(random: Random, number: int | None) -> bytes:
    """Fields with tabs between them: number, word, number; the first one only once if asked."""
    first = b"%d" % (random.randint(-20, 20) if number is None else number)
    rest = [random.choice(WORDS), b"%d" % random.randint(0, 9), random.choice(WORDS)]
    return b"\t".join([first, *rest[: random.choice([3, 3, 3, 1, 0])]])


def _commands(random: Random, job: Job, *, is_text: bool) -> None:
    job.words += ["-mapper", random.choice(["cat", "cat", "tr a-z A-Z", "sort -r", "head -n 4"])]
    if random.random() < 0.3:
        job.define("stream.map.input.ignoreKey", random.choice(["true", "false"]))
    fields = random.choice([1, 1, 1, 2]) if is_text else 1
    if fields > 1:
        job.define("stream.num.map.output.key.fields", fields)
        job.tie_key = r"^([^\t]*\t[^\t]*)"
    if random.random() < 0.15:
        job.define("stream.map.output.field.separator", random.choice([".", "e", "\u00e9", "::"]))
    reduces = random.choice([0, 1, 1, 2, 3, 5])
    job.words += ["-numReduceTasks", str(reduces)]
    if reduces == 0:
        job.compare = "exact"
        return
    _shuffle(random, job)
    if random.random() < 0.25:
        job.words += ["-combiner", random.choice(["cat", "sort"])]
        job.define("stream.num.reduce.output.key.fields", fields)
    job.words += random.choice(
        [["-reducer", "cat"], ["-reducer", "sort"], [], ["-reducer", "wc -l"]]
    )
    if "sort" in job.words and random.random() < 0.5:
        job.define("stream.reduce.output", "keyonlytext")


def _shuffle(random: Random, job: Job) -> None:
    options = ["-k1,1", "-k1.2,1.3", "-k1", "-k1.1,1.1 -k1.3", ""]
    match random.choice(["hash"] * 3 + ["fields", "fields", "binary"]):
        case "fields":
            job.words += ["-partitioner", LIB + "KeyFieldBasedPartitioner"]
            job.define("mapreduce.partition.keypartitioner.options", random.choice(options))
        case "binary":
            # It takes keys that are bytes; all keys of commands are.
            job.words += ["-partitioner", LIB + "BinaryPartitioner"]
            job.define("mapreduce.partition.binarypartitioner.right.offset", -1)
    if random.random() < 0.35:
        job.define("mapreduce.job.output.key.comparator.class", LIB + "KeyFieldBasedComparator")
        # Ranges of a key that every key has; what is left is decided by all of it.
        spec = random.choice(["-k1r", "-r", "-k1.1,1.1r -k1", "-k1.0,1.0 -k1"])
        job.define("mapreduce.partition.keycomparator.options", spec)


def _builtin(random: Random, job: Job) -> None:
    job.define("mapreduce.job.output.key.class", TEXT)
    job.define("mapreduce.job.output.value.class", LONG)
    mapper = random.choice(["TokenCountMapper", "RegexMapper"])
    job.words += ["-mapper", LIB + mapper, "-reducer", LIB + "LongSumReducer"]
    if mapper == "RegexMapper":
        job.define("mapreduce.mapper.regex", random.choice(["[a-z]+", r"\w\w", r"\p{L}+", "."]))
    if random.random() < 0.5:
        job.words += ["-combiner", LIB + "LongSumReducer"]
    job.words += ["-numReduceTasks", str(random.randint(1, 3))]


def _binary(random: Random, job: Job) -> None:
    io = random.choice(["rawbytes", "typedbytes"])
    job.words += ["-io", io, "-mapper", "cat", "-numReduceTasks", str(random.choice([0, 1, 3]))]
    if random.random() < 0.5:
        job.words += ["-reducer", "cat"]
    if random.random() < 0.4:
        job.words += ["-partitioner", LIB + "KeyFieldBasedPartitioner"]
    if random.random() < 0.4:
        job.define("mapreduce.job.output.key.comparator.class", LIB + "KeyFieldBasedComparator")
        job.define(
            "mapreduce.partition.keycomparator.options", random.choice(["-r", "-k1.3", "-k1r"])
        )


def _output(random: Random, job: Job, *, unique: bool) -> None:
    match random.choice(["text"] * 5 + ["packed", "separator", "lazy", "sequence", "null"]):
        case "packed":
            job.define("mapreduce.output.fileoutputformat.compress", "true")
            codec = random.choice(["GzipCodec", "BZip2Codec", "DefaultCodec"])
            job.define(
                "mapreduce.output.fileoutputformat.compress.codec",
                f"org.apache.hadoop.io.compress.{codec}",
            )
        case "separator":
            job.define("mapreduce.output.textoutputformat.separator", "\t|")
        case "lazy":
            job.words += ["-lazyOutput"]
        case "null":
            job.words += ["-outputformat", LIB + "NullOutputFormat"]
        case "sequence" if unique:
            job.words += ["-outputformat", OLD + "SequenceFileOutputFormat"]
