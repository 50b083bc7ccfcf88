"""`python3 master.py PORT`: the master of the course's MapReduce server."""

import sys

from mrstream.mapreduce.p4.cli import main

if __name__ == "__main__":
    # The assignment has `var` removed at the start, whatever it holds.
    sys.exit(main(["master", "--wipe", *sys.argv[1:]]))
