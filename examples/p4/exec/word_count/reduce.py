#!/usr/bin/env python3
"""Each word once, with the sum of its counts; equal words come together."""

import itertools
import sys

pairs = (line.rstrip("\n").split("\t") for line in sys.stdin)
for word, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
    print(word, sum(int(count) for _, count in group), sep="\t")
