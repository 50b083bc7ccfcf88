"""`python3 worker.py MASTER_PORT WORKER_PORT`: a worker of the course's MapReduce server."""

import sys

from mrstream.mapreduce.p4.cli import main

if __name__ == "__main__":
    sys.exit(main(["worker", *sys.argv[1:]]))
