#!/usr/bin/env python3
"""Emit every word with a 1 (MapReduce, section 2.1)."""
import sys

for line in sys.stdin:
    for word in line.split():
        print(word, 1, sep="\t")
