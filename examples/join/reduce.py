#!/usr/bin/env python3
"""Join: the user of an id comes first (A sorts before B), then what was bought."""
import sys

key = name = None
for line in sys.stdin:
    this, table, rest = line.rstrip("\n").split("\t")
    if table == "A":
        key, name = this, rest
    elif this == key:
        print(name, rest, sep="\t")
