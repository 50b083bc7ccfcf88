#!/usr/bin/env python3
"""From `source TAB target target …` emit (target, source) for every link."""
import sys

for line in sys.stdin:
    source, _, targets = line.rstrip("\n").partition("\t")
    for target in targets.split():
        print(target, source, sep="\t")
