#!/usr/bin/env python3
"""For each word list its documents, each with how often it has the word."""
import sys
from collections import Counter
from itertools import groupby

pairs = (line.rstrip("\n").split("\t") for line in sys.stdin)
for word, group in groupby(pairs, key=lambda pair: pair[0]):
    documents = Counter(document for _, document in group)
    print(word, " ".join(f"{name}:{documents[name]}" for name in sorted(documents)), sep="\t")
