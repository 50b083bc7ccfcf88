"""Runs jobs: the scheduler's brain, the path of the data, and the processes around them.

S1: a task has at most one committed attempt.
D2: without a combiner, the records that maps emit are the records that reduces read.
D3: an output file is visible if and only if it is complete.
"""
