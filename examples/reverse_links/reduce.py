#!/usr/bin/env python3
"""For each target list the pages that point to it, each once, in order."""
import sys
from itertools import groupby

pairs = (line.rstrip("\n").split("\t") for line in sys.stdin)
for target, group in groupby(pairs, key=lambda pair: pair[0]):
    print(target, " ".join(sorted({source for _, source in group})), sep="\t")
