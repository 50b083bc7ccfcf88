"""Inverted index as a library: a class learns the name of its input file before the first line."""
import os
import pathlib
import re
import sys
from collections import Counter

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


class Index:
    def setup(self):
        self.document = os.path.basename(os.environ["mapreduce_map_input_file"])

    def map(self, line):
        for word in re.findall("[a-z]+", line.lower()):
            yield word, self.document


def documents(word, names):
    counts = Counter(names)
    yield word, " ".join(f"{name}:{counts[name]}" for name in sorted(counts))


for line in mr.Job(HERE / "input", mapper=Index, reducer=documents, writes=mr.text).run().lines():
    sys.stdout.buffer.write(line + b"\n")
