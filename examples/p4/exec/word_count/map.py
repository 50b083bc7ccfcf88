#!/usr/bin/env python3
"""A word and a one, for each word of each line."""

import sys

for line in sys.stdin:
    for word in line.split():
        print(word, 1, sep="\t")
