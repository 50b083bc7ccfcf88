"""The Java class names that scripts use, and what stands for each of them here.

A class is known by its full name, by its new-API name and by its simple name; all
of them mean the full old name, which `canonical` gives. Plain tables: imports
nothing, so that settings and options are cheap to load.
"""

from __future__ import annotations

_MAPRED = "org.apache.hadoop.mapred."
_LIB = "org.apache.hadoop.mapred.lib."
_NEW = "org.apache.hadoop.mapreduce."
_STREAMING = "org.apache.hadoop.streaming."
_COMPRESS = "org.apache.hadoop.io.compress."
_IO = "org.apache.hadoop.io."

TEXT = _IO + "Text"
LONG_WRITABLE = _IO + "LongWritable"
NULL_WRITABLE = _IO + "NullWritable"
BYTES_WRITABLE = _IO + "BytesWritable"
TYPED_BYTES_WRITABLE = "org.apache.hadoop.typedbytes.TypedBytesWritable"
INTEGER_WRITABLES = frozenset({LONG_WRITABLE, _IO + "IntWritable", _IO + "ShortWritable"})

TEXT_INPUT = _MAPRED + "TextInputFormat"
KEY_VALUE_INPUT = _MAPRED + "KeyValueTextInputFormat"
SEQUENCE_FILE_INPUT = _MAPRED + "SequenceFileInputFormat"
SEQUENCE_FILE_FILTER = _MAPRED + "SequenceFileInputFilter"
STREAM_INPUT = _STREAMING + "StreamInputFormat"
RECORD_APPEND_INPUT = "mrstream.RecordAppendInputFormat"
XML_READER = _STREAMING + "StreamXmlRecordReader"
AVRO_AS_TEXT_INPUT = "org.apache.avro.mapred.AvroAsTextInputFormat"
TEXT_OUTPUT = _MAPRED + "TextOutputFormat"
SEQUENCE_FILE_OUTPUT = _MAPRED + "SequenceFileOutputFormat"
LAZY_OUTPUT = _LIB + "LazyOutputFormat"

IDENTITY_MAPPER = _LIB + "IdentityMapper"
IDENTITY_REDUCER = _LIB + "IdentityReducer"
AGGREGATE_MAPPER = _LIB + "aggregate.ValueAggregatorMapper"
AGGREGATE_REDUCER = _LIB + "aggregate.ValueAggregatorReducer"
AGGREGATE_COMBINER = _LIB + "aggregate.ValueAggregatorCombiner"

SAW = "saw"
"""A Sawzall program, as mapper, combiner and reducer; as an input format, the tables of one."""

HASH_PARTITIONER = _LIB + "HashPartitioner"
KEY_FIELD_PARTITIONER = _LIB + "KeyFieldBasedPartitioner"
TOTAL_ORDER_PARTITIONER = _LIB + "TotalOrderPartitioner"
BINARY_PARTITIONER = _LIB + "BinaryPartitioner"

KEY_FIELD_COMPARATOR = _LIB + "KeyFieldBasedComparator"
LONG_DESCENDING = _IO + "LongWritable$DecreasingComparator"

# Formats of our own, whose records reach programs as lines: named by a word.
ROW_INPUTS = ("parquet", "avro", "arrow", "csv", "proto", "program")
WARC_INPUT = "warc"
DELIMITED_INPUT = "delimited"
ROW_OUTPUTS = ("parquet", "avro", "arrow", "csv")
# Those of which the word goes on: `proto:FILE:MESSAGE`, `program:COMMAND`.
_WITH_ARGUMENT = ("proto", "program")

# Input formats whose keys are byte offsets, so that an identity mapper in front of a
# reducer command would fail on Hadoop.
OFFSET_KEYED_INPUTS = frozenset(
    {
        TEXT_INPUT,
        _LIB + "NLineInputFormat",
        _LIB + "CombineTextInputFormat",
        _STREAMING + "AutoInputFormat",
        *ROW_INPUTS,
        SAW,
    }
)

# role -> {full old name: other full names}; simple names follow from all of these.
_KNOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "mapper": {
        IDENTITY_MAPPER: (_NEW + "Mapper",),
        _LIB + "InverseMapper": (_NEW + "lib.map.InverseMapper",),
        _LIB + "TokenCountMapper": (_NEW + "lib.map.TokenCounterMapper",),
        _LIB + "RegexMapper": (_NEW + "lib.map.RegexMapper",),
        _LIB + "FieldSelectionMapReduce": (_NEW + "lib.fieldsel.FieldSelectionMapper",),
        AGGREGATE_MAPPER: (_NEW + "lib.aggregate.ValueAggregatorMapper",),
    },
    "reducer": {
        IDENTITY_REDUCER: (_NEW + "Reducer",),
        _LIB + "LongSumReducer": (_NEW + "lib.reduce.LongSumReducer",),
        _LIB + "FieldSelectionMapReduce": (_NEW + "lib.fieldsel.FieldSelectionReducer",),
        AGGREGATE_REDUCER: (_NEW + "lib.aggregate.ValueAggregatorReducer",),
        AGGREGATE_COMBINER: (_NEW + "lib.aggregate.ValueAggregatorCombiner",),
    },
    "partitioner": {
        HASH_PARTITIONER: (_NEW + "lib.partition.HashPartitioner",),
        KEY_FIELD_PARTITIONER: (_NEW + "lib.partition.KeyFieldBasedPartitioner",),
        TOTAL_ORDER_PARTITIONER: (_NEW + "lib.partition.TotalOrderPartitioner",),
        BINARY_PARTITIONER: (_NEW + "lib.partition.BinaryPartitioner",),
    },
    "comparator": {
        KEY_FIELD_COMPARATOR: (_NEW + "lib.partition.KeyFieldBasedComparator",),
        LONG_DESCENDING: (_IO + "LongWritable.DecreasingComparator",),
        LONG_WRITABLE + "$Comparator": (LONG_WRITABLE + ".Comparator",),
        TEXT + "$Comparator": (TEXT + ".Comparator",),
        BYTES_WRITABLE + "$Comparator": (BYTES_WRITABLE + ".Comparator",),
    },
    "inputformat": {
        TEXT_INPUT: (_NEW + "lib.input.TextInputFormat",),
        KEY_VALUE_INPUT: (_NEW + "lib.input.KeyValueTextInputFormat",),
        RECORD_APPEND_INPUT: (),
        SEQUENCE_FILE_INPUT: (_NEW + "lib.input.SequenceFileInputFormat",),
        _MAPRED + "SequenceFileAsTextInputFormat": (
            _NEW + "lib.input.SequenceFileAsTextInputFormat",
        ),
        _MAPRED + "SequenceFileAsBinaryInputFormat": (
            _NEW + "lib.input.SequenceFileAsBinaryInputFormat",
        ),
        SEQUENCE_FILE_FILTER: (_NEW + "lib.input.SequenceFileInputFilter",),
        _LIB + "CombineSequenceFileInputFormat": (
            _NEW + "lib.input.CombineSequenceFileInputFormat",
        ),
        _MAPRED + "FixedLengthInputFormat": (_NEW + "lib.input.FixedLengthInputFormat",),
        _LIB + "NLineInputFormat": (_NEW + "lib.input.NLineInputFormat",),
        _LIB + "CombineTextInputFormat": (_NEW + "lib.input.CombineTextInputFormat",),
        _STREAMING + "AutoInputFormat": (),
        STREAM_INPUT: (_STREAMING + "mapreduce.StreamInputFormat",),
        AVRO_AS_TEXT_INPUT: (),
        **dict.fromkeys((*ROW_INPUTS, WARC_INPUT, DELIMITED_INPUT, SAW), ()),
        "arrow": ("feather",),
    },
    "outputformat": {
        TEXT_OUTPUT: (_NEW + "lib.output.TextOutputFormat",),
        SEQUENCE_FILE_OUTPUT: (_NEW + "lib.output.SequenceFileOutputFormat",),
        _MAPRED + "SequenceFileAsBinaryOutputFormat": (
            _NEW + "lib.output.SequenceFileAsBinaryOutputFormat",
        ),
        _MAPRED + "MapFileOutputFormat": (_NEW + "lib.output.MapFileOutputFormat",),
        _LIB + "MultipleTextOutputFormat": (),
        _LIB + "MultipleSequenceFileOutputFormat": (),
        _LIB + "NullOutputFormat": (_NEW + "lib.output.NullOutputFormat",),
        LAZY_OUTPUT: (_NEW + "lib.output.LazyOutputFormat",),
        **dict.fromkeys(ROW_OUTPUTS, ()),
        "arrow": ("feather",),
    },
    "inputreader": {
        XML_READER: (_STREAMING + "mapreduce.StreamXmlRecordReader",),
        _MAPRED + "LineRecordReader": (_NEW + "lib.input.LineRecordReader",),
        _MAPRED + "KeyValueLineRecordReader": (_NEW + "lib.input.KeyValueLineRecordReader",),
    },
    "keyfilter": {
        f"{SEQUENCE_FILE_FILTER}${name}": (f"{_NEW}lib.input.SequenceFileInputFilter${name}",)
        for name in ("PercentFilter", "MD5Filter", "RegexFilter")
    },
    "resolver": {_STREAMING + "io.IdentifierResolver": ()},
    "pathfilter": {},
    "codec": {
        _COMPRESS + "DefaultCodec": (),
        _COMPRESS + "DeflateCodec": (),
        _COMPRESS + "GzipCodec": (),
        _COMPRESS + "BZip2Codec": (),
        _COMPRESS + "Lz4Codec": (),
        _COMPRESS + "SnappyCodec": (),
        _COMPRESS + "ZStandardCodec": (),
    },
}
# A combiner is a reducer that runs early.
_KNOWN["combiner"] = _KNOWN["reducer"]

ROLES = tuple(_KNOWN)

# Simple names that could as well be a program: only their full names mean the class.
_AMBIGUOUS = frozenset({"Mapper", "Reducer", "Comparator", "DecreasingComparator"})

INSTEAD = {
    "mapper": "write it as a program that reads lines on stdin and writes lines on stdout",
    "reducer": "write it as a program that reads sorted lines on stdin and writes lines on stdout",
    "combiner": "write it as a program that reads sorted lines on stdin and writes lines on stdout",
    "partitioner": "use KeyFieldBasedPartitioner or TotalOrderPartitioner",
    "comparator": "use KeyFieldBasedComparator",
    "inputformat": "use TextInputFormat, KeyValueTextInputFormat, NLineInputFormat, "
    "CombineTextInputFormat or SequenceFileInputFormat, or one of "
    "parquet avro arrow csv warc proto:FILE:MESSAGE program:COMMAND",
    "outputformat": "use TextOutputFormat, MultipleTextOutputFormat or SequenceFileOutputFormat, "
    "or one of parquet avro arrow csv",
    "inputreader": "use StreamXmlRecordReader",
    "keyfilter": "use the filters PercentFilter, MD5Filter or RegexFilter",
    "resolver": "use -io text, rawbytes, typedbytes or keyonlytext",
    "pathfilter": "choose the files with a glob in -input",
    "codec": "use GzipCodec, BZip2Codec, DefaultCodec, Lz4Codec, SnappyCodec or ZStandardCodec",
}


def canonical(name: str, role: str) -> str | None:
    """Return the full old name of a class that we know in this role, or None.

    A format that takes an argument keeps it: `proto:FILE:MESSAGE`.
    """
    word, _colon, argument = name.partition(":")
    if role == "inputformat" and word in _WITH_ARGUMENT:
        return name if argument else None
    return _names(role).get(name)


def known(role: str) -> list[str]:
    """Return the full names of the classes that we know in this role."""
    return list(_KNOWN[role])


def looks_like_java(word: str) -> bool:
    """Whether a word reads like a Java class in a package (`com.acme.MyMapper`).

    A file of that name, and anything with a slash or a lower-case last part, is a program.
    """
    packages, dot, simple = word.rpartition(".")
    return (
        bool(dot)
        and "/" not in word
        and simple[:1].isupper()
        and simple.replace("$", "").replace("_", "").isalnum()
        and all(part.isidentifier() and part[:1].islower() for part in packages.split("."))
    )


def java_message(option: str, name: str, role: str) -> str:
    """Return the line for a Java class that we do not have."""
    return f"{option} {name} is a Java class, and mrstream runs no Java: {INSTEAD[role]}"


_names_by_role: dict[str, dict[str, str]] = {}


def _names(role: str) -> dict[str, str]:
    """Return every name of a role's classes, full, new and simple, with the one it means."""
    names = _names_by_role.get(role)
    if names is None:
        names = {}
        for full, others in _KNOWN[role].items():
            for name in (full, *others):
                names[name] = full
                simple = name.rpartition(".")[2]
                if simple not in _AMBIGUOUS:
                    names.setdefault(simple, full)
        _names_by_role[role] = names
    return names
