"""Counts characters, words and lines: one step, no combiner."""

from mrjob.job import MRJob


class CountAll(MRJob):
    def mapper(self, _, line):
        yield "chars", len(line)
        yield "words", len(line.split())
        yield "lines", 1

    def reducer(self, name, amounts):
        yield name, sum(amounts)


if __name__ == "__main__":
    CountAll.run()
