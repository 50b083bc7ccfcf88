"""Final output of an attempt: what a program writes becomes a part file, not yet visible.

Takes the bytes of a command, or records of a built-in; text goes through the kernel in whole blobs,
everything else record by record. The committer makes the file visible later. Counts what it writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.dataflow.record_form import Cut
from mrstream.mapreduce.job import counters as c
from mrstream.streaming.formats.output_format import OutputWriter, open_output
from mrstream.streaming.formats.record_io import record_cutter, record_types
from mrstream.streaming.formats.writable import WritableType
from mrstream.streaming.records.key_value import KeyValueRule

Record = tuple[bytes, bytes]


class FinalOutput:
    """The part file of one attempt: feed it, then `finish`; or `abandon` it."""

    def __init__(self, attempt: Attempt, key_type: WritableType, value_type: WritableType) -> None:
        self._attempt = attempt
        split = attempt.order.split
        self._writer: OutputWriter = open_output(
            attempt.conf,
            attempt.create_output,
            attempt.order.task_index,
            key_type=key_type,
            value_type=value_type,
            input_url=split.pieces[0].url if split is not None and split.pieces else None,
        )

    @property
    def records(self) -> int:
        """Records written so far."""
        return self._writer.records_written

    @property
    def bytes_written(self) -> int:
        """Bytes of the file so far, compressed if it is."""
        return self._writer.bytes_written

    @property
    def takes_text(self) -> bool:
        """Whether lines in their final form may be written as they are."""
        return not self._writer.wants_records

    def add(self, records: Iterable[Record]) -> None:
        self._writer.write_records(records)

    def write(self, text: bytes, records: int) -> None:
        """Take lines in their final form."""
        self._writer.write(text, records)

    def finish(self) -> None:
        self._writer.close()
        if self._writer.rejected:
            self._attempt.counters.framework(c.REJECTED_RECORDS, self._writer.rejected)

    def abandon(self) -> None:
        self._writer.abandon()


class CommandOutput(FinalOutput):
    """The part file of an attempt whose last program is a command."""

    def __init__(self, attempt: Attempt, identifier: str, rule: KeyValueRule) -> None:
        super().__init__(attempt, *record_types(identifier))
        self._rewriter: kernel.LineRewriter | None = None
        self._lines: WholeLines | None = None
        is_lines = identifier in ("text", "keyonlytext")
        if is_lines and self._writer.wants_lines:
            self._lines = WholeLines()
        elif is_lines and self.takes_text:
            cut = Cut.LINES if identifier == "text" else Cut.KEY_LINES
            self._rewriter = kernel.line_rewriter(cut, rule, attempt.conf.output_separator)
        else:
            self._cutter = record_cutter(identifier, rule)

    def feed(self, data: memoryview) -> None:
        """Take the next bytes that the command wrote."""
        if self._lines is not None:
            self._write_whole(self._lines.feed(data))
        elif self._rewriter is None:
            self.add(self._cutter.feed(bytes(data)))
        else:
            self._write_lines(self._rewriter, self._rewriter.feed(data))

    def finish(self) -> None:
        """Take the end of the command's output, and complete the file."""
        if self._lines is not None:
            self._write_whole(self._lines.finish())
        elif self._rewriter is None:
            self.add(self._cutter.finish())
        else:
            self._write_lines(self._rewriter, self._rewriter.finish())
        super().finish()

    def _write_whole(self, text: bytes) -> None:
        self.write(text, kernel.count_lines(text))

    def _write_lines(self, rewriter: kernel.LineRewriter, text: bytes) -> None:
        self.write(text, rewriter.records - self.records)


class WholeLines:
    """Cuts a stream into blobs that end where a line does."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def feed(self, data: memoryview) -> bytes:
        blob = bytes(data)
        end = blob.rfind(b"\n") + 1
        if not end:
            self._held.append(blob)
            return b""
        whole = b"".join([*self._held, blob[:end]])
        self._held = [blob[end:]] if end < len(blob) else []
        return whole

    def finish(self) -> bytes:
        """Return the last line, with the end that it lacks."""
        rest = b"".join(self._held)
        self._held = []
        return rest + b"\n" if rest else b""
