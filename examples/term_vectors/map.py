#!/usr/bin/env python3
"""From `URL TAB text` emit (host, word count of the page)."""
import sys
from collections import Counter
from urllib.parse import urlsplit

for line in sys.stdin:
    url, _, text = line.rstrip("\n").partition("\t")
    counts = Counter(text.lower().split())
    vector = " ".join(f"{word}:{count}" for word, count in sorted(counts.items()))
    print(urlsplit(url).hostname, vector, sep="\t")
