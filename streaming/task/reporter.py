"""The stderr of a program: counters and status for us, everything else for the log.

Takes blobs of bytes as they come from the pipe; gives events. Blobs without a
reporter line pass whole, so a gigabyte of stderr costs a search, not a loop. Holds
at most one unfinished reporter line; never reads the pipe itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

REPORTER_LINE_BYTES_MAX = 64 * 1024
NAME_CHARS_MAX = 64
GROUP_CHARS_MAX = 128
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1

_LINE_END = re.compile(rb"[\r\n]")
_AMOUNT = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
# What Java's String.trim takes off: every character up to the blank.
_TRIMMED = "".join(map(chr, range(33)))


class Counter(msgspec.Struct, frozen=True):
    """`reporter:counter:GROUP,NAME,AMOUNT`."""

    group: str
    name: str
    amount: int


class Status(msgspec.Struct, frozen=True):
    """`reporter:status:TEXT`."""

    text: str


class Warning(msgspec.Struct, frozen=True):
    """A reporter line that means nothing; the task goes on."""

    text: str


class Text(msgspec.Struct, frozen=True):
    """Bytes for the log, as the program wrote them."""

    data: bytes


Event = Counter | Status | Warning | Text


class Reporter:
    """Cuts the reporter lines out of a stream.

    Invariant: `_held` is empty, or the start of a line that may yet turn out to be
    a reporter line, no longer than REPORTER_LINE_BYTES_MAX.
    """

    def __init__(self, prefix: bytes = b"reporter:") -> None:
        assert prefix, "an empty prefix is replaced by the default before it gets here"
        self._prefix = prefix
        self._held = b""
        self._at_line_start = True
        self._drop_newline = False

    def feed(self, data: bytes) -> list[Event]:
        if self._drop_newline and data:
            # The line feed of a CR LF that ended a reporter line in the blob before.
            self._drop_newline = False
            data = data.removeprefix(b"\n")
        if self._held:
            data = self._held + data
            self._held = b""
            self._at_line_start = True
        return list(self._cut(data)) if data else []

    def close(self) -> list[Event]:
        """Return the event of the last line, if that had no end."""
        held, self._held = self._held, b""
        if held.startswith(self._prefix):
            return [self._parse(held)]
        return [Text(held)] if held else []

    def _cut(self, data: bytes) -> Iterator[Event]:
        done = 0
        while (start := self._find_line(data, done)) >= 0:
            if start > done:
                yield Text(data[done:start])
            end = _LINE_END.search(data, start)
            if end is None:
                if len(data) - start <= REPORTER_LINE_BYTES_MAX:
                    self._held = data[start:]
                else:
                    yield Text(data[start:])
                    self._at_line_start = False
                return
            yield self._parse(data[start : end.start()])
            done = end.end()
            if data[end.start()] == 13:
                if done < len(data):
                    done += data[done] == 10
                else:
                    self._drop_newline = True
            self._at_line_start = True
        yield from self._rest(data, done)

    def _find_line(self, data: bytes, begin: int) -> int:
        """Return where the next line that starts with the prefix begins, or -1."""
        at = data.find(self._prefix, begin)
        while at >= 0:
            if at == begin:
                if self._at_line_start:
                    return at
            elif data[at - 1] in b"\r\n":
                return at
            at = data.find(self._prefix, at + 1)
        return -1

    def _rest(self, data: bytes, done: int) -> Iterator[Event]:
        """Yield what is surely no reporter line, and hold back the start of a possible one."""
        if done == len(data):
            return
        # Only a line shorter than the prefix is undecided, so only its last bytes matter.
        window = max(done, len(data) - len(self._prefix))
        last_end = max(data.rfind(b"\n", window), data.rfind(b"\r", window))
        line = last_end + 1 if last_end >= 0 else window
        starts_line = last_end >= 0 or (window == done and self._at_line_start)
        if not (starts_line and self._prefix.startswith(data[line:])):
            line = len(data)
        self._held = data[line:]
        if line > done:
            yield Text(data[done:line])
            self._at_line_start = data[line - 1] in b"\r\n"

    def _parse(self, line: bytes) -> Event:
        text = line.decode("utf-8", "replace")
        content = line[len(self._prefix) :].decode("utf-8", "replace")
        if content.startswith("counter:"):
            return self._parse_counter(content.removeprefix("counter:").strip(_TRIMMED), text)
        if content.startswith("status:"):
            return Status(content.removeprefix("status:").strip(_TRIMMED))
        return Warning(f"Cannot parse reporter line: {text}")

    def _parse_counter(self, content: str, line: str) -> Event:
        parts = content.rstrip(",").split(",")
        if len(parts) != 3:
            return Warning(f"Cannot parse counter line: {line}")
        group, name, amount = parts
        if not _AMOUNT.fullmatch(amount) or not _LONG_MIN <= int(amount) <= _LONG_MAX:
            return Warning(f"Cannot parse counter increment '{amount}' from line: {line}")
        return Counter(
            _shortened(group, GROUP_CHARS_MAX),
            _shortened(name, NAME_CHARS_MAX),
            int(amount),
        )


def _shortened(name: str, chars_max: int) -> str:
    """Cut a name that is too long to one less than it may have, as Hadoop does."""
    return name[: chars_max - 1] if len(name) > chars_max else name
