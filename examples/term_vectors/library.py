"""Term vector per host as a library: Counters travel as JSON objects."""
import pathlib
import sys
from collections import Counter
from urllib.parse import urlsplit

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


def vector(url, text):
    yield urlsplit(url).hostname, dict(Counter(text.lower().split()))


def add(host, vectors):
    total = Counter()
    for counts in vectors:
        total.update(counts)
    frequent = {word: count for word, count in total.items() if count > 1}
    ranked = sorted(frequent, key=lambda word: (-frequent[word], word))
    yield host, " ".join(f"{word}:{frequent[word]}" for word in ranked)


job = mr.Job(HERE / "input", mapper=vector, reducer=add, reads=mr.text, writes=mr.text)
for line in job.run().lines():
    sys.stdout.buffer.write(line + b"\n")
