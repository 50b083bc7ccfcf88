#!/usr/bin/env python3
# Typed bytes come as they are: print each side in hexadecimal.
import struct, sys
data = sys.stdin.buffer.read()
at = 0
while at < len(data):
    sides = []
    for _ in range(2):
        if data[at] == 7:
            (size,) = struct.unpack_from(">i", data, at + 1)
            end = at + 5 + size
        else:
            end = at + 9
        sides.append(data[at:end].hex())
        at = end
    print("\t".join(sides))
