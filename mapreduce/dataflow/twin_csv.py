"""Used by `twin`: CSV records as lines, in Python, byte for byte as `_kernel_csv.c` gives them."""

from __future__ import annotations

from mrstream.mapreduce.dataflow.record_form import CsvForm, CsvInput

_LF, _CR = 10, 13
_START_RECORD, _AFTER_CR, _START_FIELD, _IN_FIELD, _IN_QUOTES, _AFTER_QUOTE = range(6)
_SHORT = {0x22: b'\\"', 0x5C: b"\\\\", _LF: b"\\n", _CR: b"\\r", 9: b"\\t"}
_TABS = {0x5C: b"\\\\", _LF: b"\\n", _CR: b"\\r", 9: b"\\t"}


class CsvReader:
    """See `kernel.csv_reader`."""

    def __init__(self, of: CsvInput) -> None:
        self._of = of
        self._state = _START_RECORD
        self._fields: list[bytes] = []
        self._field = bytearray()
        self._text_bytes = 0
        self._out = bytearray()
        self._record_at = self._quote_at = of.start
        self.position = of.start
        self.records = 0
        self.done = False

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        for byte in bytes(data):
            while not self.done and not self._take(byte):
                pass  # a byte that changed the state is looked at again in the new one
            if self.done:
                break
            self.position += 1
        return self._given()

    def finish(self) -> bytes:
        if not self.done and self._state not in (_START_RECORD, _AFTER_CR):
            if self._state == _IN_QUOTES:
                raise ValueError(f"the quote at byte {self._quote_at} is never closed")
            self._end_record(_LF)
        return self._given()

    def _given(self) -> bytes:
        given = bytes(self._out)
        self._out.clear()
        return given

    def _take(self, byte: int) -> bool:
        """Take a byte; False: the state has changed, and the byte is still to be taken."""
        match self._state:
            case 1:  # _AFTER_CR
                self._state = _START_RECORD
                return byte == _LF
            case 0:  # _START_RECORD
                return self._take_first(byte)
            case 2 if byte == self._of.quote:  # _START_FIELD
                self._quote_at = self.position
                self._state = _IN_QUOTES
            case 2 | 3:  # _START_FIELD, _IN_FIELD
                self._state = _IN_FIELD
                if byte == self._of.delimiter or byte in (_LF, _CR):
                    self._take_end(byte)
                else:
                    self._add(byte)
            case 4:  # _IN_QUOTES
                if byte == self._of.quote:
                    self._state = _AFTER_QUOTE
                else:
                    self._add(byte)
            case _:  # _AFTER_QUOTE
                if byte == self._of.quote:
                    self._state = _IN_QUOTES
                    self._add(byte)
                else:
                    self._state = _IN_FIELD
                    return False
        return True

    def _take_first(self, byte: int) -> bool:
        self._record_at = self.position
        if self._of.end is not None and self.position >= self._of.end:
            self.done = True
            return False
        if byte in (_LF, _CR):
            self._state = _AFTER_CR if byte == _CR else _START_RECORD
            return True
        self._state = _START_FIELD
        return False

    def _add(self, byte: int) -> None:
        self._text_bytes += 1
        if self._text_bytes > self._of.bytes_max:
            raise ValueError(
                f"the record at byte {self._record_at} is longer than {self._of.bytes_max} bytes: "
                "is a quote not closed?"
            )
        self._field.append(byte)

    def _take_end(self, byte: int) -> None:
        if byte in (_LF, _CR):
            self._end_record(byte)
            return
        self._state = _START_FIELD
        self._end_field()

    def _end_field(self) -> None:
        self._fields.append(bytes(self._field))
        self._field.clear()

    def _end_record(self, ender: int) -> None:
        self._end_field()
        fields, self._fields, self._text_bytes = self._fields, [], 0
        self._state = _AFTER_CR if ender == _CR else _START_RECORD
        of = self._of
        if of.fields_max and len(fields) > of.fields_max:
            raise ValueError(
                f"the record at byte {self._record_at} has {len(fields)} fields, "
                f"and the header {of.fields_max}"
            )
        self.records += 1
        if of.form is CsvForm.NOTHING:
            return
        chosen = range(len(fields)) if of.columns is None else of.columns
        values = [fields[index] if index < len(fields) else None for index in chosen]
        self._out += _line(of, values)


def _line(of: CsvInput, values: list[bytes | None]) -> bytes:
    if of.form is CsvForm.TABS:
        return b"\t".join(b"\\N" if v is None else _escaped(v, _TABS) for v in values) + b"\n"
    written = [b"null" if v is None else b'"' + _json(v) + b'"' for v in values]
    if of.form is CsvForm.ARRAYS:
        return b"[" + b",".join(written) + b"]\n"
    pairs = (name + value for name, value in zip(of.names, written, strict=True))
    return b"{" + b"".join(pairs) + b"}\n"


def _json(value: bytes) -> bytes:
    parts = (
        _SHORT.get(byte) or (b"\\u%04x" % byte if byte < 0x20 else bytes([byte])) for byte in value
    )
    return b"".join(parts)


def _escaped(value: bytes, escapes: dict[int, bytes]) -> bytes:
    return b"".join(escapes.get(byte) or bytes([byte]) for byte in value)
