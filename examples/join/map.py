#!/usr/bin/env python3
"""Tag each line by the table it is from: `id TAB A TAB name` or `id TAB B TAB thing`."""
import os
import sys

table = "A" if "users" in os.path.basename(os.environ["mapreduce_map_input_file"]) else "B"
for line in sys.stdin:
    key, _, rest = line.rstrip("\n").partition("\t")
    print(key, table, rest, sep="\t")
