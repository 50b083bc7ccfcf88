#!/usr/bin/env python3
"""Add the vectors of a host's pages and drop the words that occur once only."""
import sys
from collections import Counter
from itertools import groupby

pairs = (line.rstrip("\n").split("\t") for line in sys.stdin)
for host, group in groupby(pairs, key=lambda pair: pair[0]):
    total = Counter()
    for _, vector in group:
        for term in vector.split():
            word, _, count = term.rpartition(":")
            total[word] += int(count)
    frequent = {word: count for word, count in total.items() if count > 1}
    ranked = sorted(frequent, key=lambda word: (-frequent[word], word))
    print(host, " ".join(f"{word}:{frequent[word]}" for word in ranked), sep="\t")
