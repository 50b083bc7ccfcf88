#!/usr/bin/env python3
"""sample.py PARTS FILE…: write the cut points of a total order to standard output.

They make a sequence file of PARTS - 1 keys, so that each reducer gets about the same share (the paper's own sort,
section 5.3, cuts by a sample too). Small inputs are read whole.
"""
import os
import struct
import sys

parts, paths = int(sys.argv[1]), sys.argv[2:]
keys = sorted({line.split(b"\t")[0].rstrip(b"\n") for path in paths for line in open(path, "rb")})
cuts = [keys[len(keys) * n // parts] for n in range(1, parts)]


def text(data: bytes) -> bytes:
    """A Hadoop Text of fewer than 128 bytes."""
    return bytes([len(data)]) + data


sync = os.urandom(16)
out = b"SEQ\x06" + text(b"org.apache.hadoop.io.Text") + text(b"org.apache.hadoop.io.NullWritable")
out += b"\0\0" + struct.pack(">i", 0) + sync
for cut in cuts:
    out += struct.pack(">ii", len(text(cut)), len(text(cut))) + text(cut)
sys.stdout.buffer.write(out)
