"""Which sink writes the records of an output format, and how its settings are read.

`check_row_output` refuses settings that make no sense when a job is submitted; `open_row_output`
opens a part file. The libraries are imported only with a sink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.formats.codec import Codec, codec_by_class
from mrstream.streaming.formats.row_file import BadRowSetting
from mrstream.streaming.formats.row_output import Outlet, RowOutput, Sink
from mrstream.streaming.formats.row_schema import Fields, parse_schema

if TYPE_CHECKING:
    from mrstream.streaming.formats.output_format import OutputFormat

# What each format calls a codec; CSV is text, and takes any.
_COMPRESSION = {
    "parquet": {".gz": "gzip", ".snappy": "snappy", ".zst": "zstd", ".lz4": "lz4"},
    "arrow": {".zst": "zstd", ".lz4": "lz4"},
    "avro": {
        ".deflate": "deflate",
        ".snappy": "snappy",
        ".zst": "zstandard",
        ".bz2": "bzip2",
    },
}


def check_row_output(kind: OutputFormat, conf: JobConf) -> None:
    """Refuse a schema or a codec that this format cannot have."""
    if conf.output_schema:
        parse_schema(conf.output_schema)
    _ = conf.output_rejects, conf.csv_dialect
    _compression(kind.value, _codec(conf))


def open_row_output(
    kind: OutputFormat, conf: JobConf, create: Callable[[str], BinaryIO], name: str
) -> RowOutput:
    """Open a part file: `create(name)` makes it, with the format's suffix."""
    codec = _codec(conf)
    compression = _compression(kind.value, codec)

    def open_sink(outlet: Outlet, fields: Fields) -> Sink:
        match kind.value:
            case "parquet":
                from mrstream.streaming.formats.arrow_output import ParquetSink

                return ParquetSink(outlet, fields, compression)
            case "arrow":
                from mrstream.streaming.formats.arrow_output import ArrowFileSink

                return ArrowFileSink(outlet, fields, compression)
            case "csv":
                from mrstream.streaming.formats.csv_output import CsvSink

                return CsvSink(outlet, fields, conf.csv_dialect, codec)
            case "avro":
                from mrstream.streaming.formats.avro_output import AvroSink

                return AvroSink(outlet, fields, compression)
        raise AssertionError(f"{kind.name} has no schema")

    suffix = codec.suffix if codec is not None and kind.value == "csv" else ""
    return RowOutput(
        create,
        name,
        f".{kind.value}{suffix}",
        open_sink,
        schema=conf.output_schema,
        rejects_percent=conf.output_rejects,
        lazy=conf.lazy_output,
    )


def _codec(conf: JobConf) -> Codec | None:
    return codec_by_class(conf.output_codec_class) if conf.output_compress else None


def _compression(kind: str, codec: Codec | None) -> str | None:
    known = _COMPRESSION.get(kind)
    if codec is None or known is None:
        return None
    if codec.suffix not in known:
        simple = codec.class_name.rpartition(".")[2]
        raise BadRowSetting(
            f"-outputformat {kind} cannot be compressed by {simple} "
            f"({setting_name('output_codec_class')}); it can by {', '.join(known.values())}"
        )
    return known[codec.suffix]
