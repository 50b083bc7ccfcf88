"""`python3 send_job.py PORT`: send a sample job, a count of words, to a master."""

import sys

from mrstream.mapreduce.p4.cli import main

JOB = ["input/sample1", "output", "exec/word_count/map.py", "exec/word_count/reduce.py"]

if __name__ == "__main__":
    sys.exit(main(["submit", *sys.argv[1:], *JOB, "--mappers", "2", "--reducers", "4"]))
