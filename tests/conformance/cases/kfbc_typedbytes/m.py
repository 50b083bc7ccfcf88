#!/usr/bin/env python3
# Each line becomes a key of another type: string, int, long, double, bool, bytes, list, map.
import struct, sys

def string(text):
    return struct.pack(">Bi", 7, len(text)) + text

def typed(number, text):
    kind = 0
    return (
        string(text),
        struct.pack(">Bi", 3, number * 1001 - 20000),
        struct.pack(">Bq", 4, number << 33),
        struct.pack(">Bd", 6, number / 7),
        struct.pack(">BB", 2, number % 16 == 4),
        struct.pack(">Bi", 0, len(text)) + text,
        b"\x09" + string(text) + struct.pack(">Bi", 3, number) + b"\xff",
        struct.pack(">Bi", 10, 1) + string(text) + string(b"v"),
    )[kind]

for number, line in enumerate(sys.stdin.buffer):
    key, _, value = line.rstrip(b"\n").partition(b"\t")
    sys.stdout.buffer.write(typed(number, key) + string(value))
