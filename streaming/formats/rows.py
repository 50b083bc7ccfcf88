"""Which reader gives the records of a format as lines; the libraries are imported only with it.

Takes an open file, a range of it and the job's settings. A new format is a reader of its own, a
name in `classes.ROW_INPUTS`, and a line here.
"""

from __future__ import annotations

import base64

from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.row_file import RowReader, Source
from mrstream.streaming.formats.row_filter import parse_filter


def open_rows(kind: InputFormat, source: Source, start: int, end: int, conf: JobConf) -> RowReader:
    """Return the reader of the records that begin in [start, end)."""
    columns, where, form = conf.input_columns, parse_filter(conf.input_where), conf.input_lines
    match kind:
        case InputFormat.PARQUET:
            from mrstream.streaming.formats.parquet_rows import ParquetRows

            return ParquetRows(source, start, end, columns=columns, where=where, form=form)
        case InputFormat.ARROW:
            from mrstream.streaming.formats.arrow_rows import ArrowRows

            return ArrowRows(source, start, end, columns=columns, where=where, form=form)
        case InputFormat.PROTO:
            from mrstream.streaming.formats.proto_rows import ProtoRows, message_class

            name = conf.input_format_class.rpartition(":")[2]
            message = message_class(base64.b64decode(conf.proto_descriptors), name)
            return ProtoRows(source, message, columns=columns, form=form)
        case InputFormat.AVRO:
            from mrstream.streaming.formats.avro_rows import AvroRows

            return AvroRows(source, start, end, columns=columns, where=where, form=form)
    raise AssertionError(f"{kind.name} is no format whose records become lines")
