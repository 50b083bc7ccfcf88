"""Used by `twin`: lines in and out, in Python (spec 3.4, 3.5, 4.1, 4.4).

`LineFeeder` and `LineRewriter` give what their C namesakes give; only where one piece
of output ends and the next begins may differ. Never opens a file.
"""

from __future__ import annotations

from mrstream.mapreduce.dataflow.record_form import Cut, LineForm, LineInput
from mrstream.streaming.records.key_value import KeyValueRule, split

_LF, _CR = 10, 13
_BOM = b"\xef\xbb\xbf"


def count_lines(data: bytes | bytearray | memoryview) -> int:
    """See `kernel.count_lines`."""
    return bytes(data).count(b"\n")


class LineCutter:
    """Cuts bytes at LF, CR LF or a lone CR, wherever one feed ends and the next begins."""

    def __init__(self) -> None:
        self._rest = b""
        self._looked_at = 0  # bytes of the rest that are known to have no line end

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Return (line, its bytes, the end counted) for each line that is complete.

        A CR at the end of the data waits: a LF behind it would belong to it.
        """
        found: list[tuple[bytes, int]] = []
        data = self._rest + data
        at, look_at = 0, self._looked_at
        while True:
            lf = data.find(b"\n", look_at)
            cr = data.find(b"\r", look_at, lf if lf >= 0 else len(data))
            end = cr if cr >= 0 else lf
            if end < 0:
                look_at = len(data)
                break
            after = end + 1
            if data[end] == _CR:
                if after == len(data):
                    look_at = end
                    break
                if data[after] == _LF:
                    after += 1
            found.append((data[at:end], after - at))
            at = look_at = after
        self._rest = data[at:]
        self._looked_at = look_at - at
        return found

    def finish(self) -> list[tuple[bytes, int]]:
        """The data has ended: return the last line, if there is one."""
        rest, self._rest, self._looked_at = self._rest, b"", 0
        return [(rest.removesuffix(b"\r"), len(rest))] if rest else []


class LineFeeder:
    """See `kernel.LineFeeder`."""

    def __init__(self, of: LineInput) -> None:
        self._of = of
        self._cutter = LineCutter()
        self._line_at = of.start
        self._skipping = of.skip_first
        self._bom_wanted = _BOM if of.strip_bom and of.start == 0 and not of.skip_first else b""
        self._bom_held = b""
        self._bom_dropped = 0
        self._taken = 0
        self.records = 0
        self.done = False

    @property
    def position(self) -> int:
        return self._line_at if self.done else self._of.start + self._taken

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        data = bytes(data)
        if self.done:
            return b""
        self._taken += len(data)
        return self._give_all(self._cutter.feed(self._without_bom(data)))

    def finish(self) -> bytes:
        if self.done:
            return b""
        found = self._cutter.feed(self._bom_held)
        self._bom_wanted = self._bom_held = b""
        return self._give_all(found + self._cutter.finish())

    def _without_bom(self, data: bytes) -> bytes:
        """Hold back what may be a byte order mark; drop it, or give it back, once it is known."""
        if not self._bom_wanted:
            return data
        held = self._bom_held + data
        if held.startswith(self._bom_wanted):
            self._bom_dropped = len(_BOM)
            held = held[len(_BOM) :]
        elif self._bom_wanted.startswith(held):
            self._bom_held = held
            return b""
        self._bom_wanted = self._bom_held = b""
        return held

    def _give_all(self, lines: list[tuple[bytes, int]]) -> bytes:
        given: list[bytes] = []
        for line, size in lines:
            if self._past_end():
                break
            given.append(self._give(line, size))
        else:
            self._past_end()
        return b"".join(given)

    def _past_end(self) -> bool:
        self.done = self._of.end is not None and self._line_at > self._of.end
        return self.done

    def _give(self, line: bytes, size: int) -> bytes:
        at = self._line_at
        self._line_at += size + self._bom_dropped
        self._bom_dropped = 0
        if self._skipping:
            self._skipping = False
            return b""
        if 0 < self._of.line_bytes_max <= size:
            return b""
        self.records += 1
        return self._written(line, at)

    def _written(self, line: bytes, at: int) -> bytes:
        of = self._of
        key, _, value = line.partition(bytes((of.key_end,)))
        match of.form:
            case LineForm.LINE:
                return line + b"\n"
            case LineForm.OFFSET_LINE:
                return b"%d%b%b\n" % (at, of.separator, line)
            case LineForm.KEY_VALUE:
                return b"%b%b%b\n" % (key, of.separator, value)
            case LineForm.VALUE:
                return value + b"\n"
            case LineForm.OFFSET:
                return b"%d\n" % at
            case LineForm.KEY:
                return key + b"\n"


class LineRewriter:
    """See `kernel.LineRewriter`."""

    def __init__(self, cut: Cut, rule: KeyValueRule, separator: bytes) -> None:
        self._cut = cut
        self._rule = rule
        self._separator = separator
        self._cutter = LineCutter()
        self.records = 0

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        return self._rewritten(self._cutter.feed(bytes(data)))

    def finish(self) -> bytes:
        return self._rewritten(self._cutter.finish())

    def _rewritten(self, lines: list[tuple[bytes, int]]) -> bytes:
        self.records += len(lines)
        if self._cut == Cut.KEY_LINES:
            return b"".join([line + b"\n" for line, _ in lines])
        separator = self._separator
        pairs = [split(line, self._rule) for line, _ in lines]
        return b"".join([b"%b%b%b\n" % (key, separator, value) for key, value in pairs])
