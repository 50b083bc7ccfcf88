#!/usr/bin/env python3
"""Add up the numbers of each word; its own combiner."""
import sys
from itertools import groupby

pairs = (line.rstrip("\n").split("\t") for line in sys.stdin)
for word, group in groupby(pairs, key=lambda pair: pair[0]):
    print(word, sum(int(number) for _, number in group), sep="\t")
