#!/usr/bin/env python3
# Text lines become rawbytes records.
import struct, sys
for line in sys.stdin.buffer:
    for side in line.rstrip(b"\n").split(b"\t"):
        sys.stdout.buffer.write(struct.pack(">i", len(side)) + side)
