"""Verbs that show bytes: cat, text, head, tail, checksum."""

from __future__ import annotations

import io
import time

from mrstream.dfs.errors import IsADirectory
from mrstream.dfs.shell.arguments import Arguments
from mrstream.dfs.shell.items import Item, Shell
from mrstream.dfs.shell.volumes import PIECE_BYTES

END_BYTES = 1024
FOLLOW_S = 1.0


def cat(shell: Shell, said: Arguments) -> None:
    """Write files to standard output."""
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            with _opened(item) as file:
                _pour(shell, file)


def text(shell: Shell, said: Arguments) -> None:
    """As `cat`, decompressed and with sequence files as text."""
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            with _opened(item) as file:
                shell.out.writelines(shell.decode(item.name, io.BufferedReader(file, PIECE_BYTES)))


def head(shell: Shell, said: Arguments) -> None:
    """The first kilobyte."""
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            with _opened(item) as file:
                shell.out.write(_read(file, END_BYTES))


def tail(shell: Shell, said: Arguments) -> None:
    """The last kilobyte; with -f whatever is added from then on."""
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            position = max(0, item.known().length_bytes - END_BYTES)
            position += _from(shell, item, position)
            while "f" in said:
                shell.out.flush()
                time.sleep(float(said.values.get("s", FOLLOW_S)))
                position += _from(shell, item, position)


def checksum(shell: Shell, said: Arguments) -> None:
    """The CRC32C of each file's bytes."""
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            if item.is_directory:
                raise IsADirectory(item.shown)
            crc = item.volume.checksum(item.path)
            shell.print(f"{item.shown}\tCOMPOSITE-CRC32C\t{crc:08x}")


def _opened(item: Item) -> io.RawIOBase:
    if item.is_directory:
        raise IsADirectory(item.shown)
    file: io.RawIOBase = item.volume.open(item.path)
    return file


def _from(shell: Shell, item: Item, position: int) -> int:
    """Write everything from there on; return how many bytes it was."""
    with _opened(item) as file:
        file.seek(position)
        return _pour(shell, file)


def _pour(shell: Shell, file: io.RawIOBase) -> int:
    buffer = bytearray(PIECE_BYTES)
    total = 0
    while count := file.readinto(buffer):
        shell.out.write(memoryview(buffer)[:count])
        total += count
    return total


def _read(file: io.RawIOBase, size: int) -> bytes:
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
