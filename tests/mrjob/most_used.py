"""The word that is used most: two steps, a combiner, counters, a file of stop words."""

import re

from mrjob.job import MRJob
from mrjob.step import MRStep


class MostUsed(MRJob):
    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--stop-words")

    def steps(self):
        return [
            MRStep(
                mapper_init=self.load, mapper=self.words, combiner=self.add, reducer=self.totals
            ),
            MRStep(reducer=self.largest),
        ]

    def load(self):
        with open(self.options.stop_words) as file:
            self.stop_words = set(file.read().split())

    def words(self, _, line):
        self.increment_counter("text", "lines")
        for word in re.findall(r"[\w']+", line.lower()):
            if word in self.stop_words:
                self.increment_counter("text", "stop words")
            else:
                yield word, 1

    def add(self, word, amounts):
        yield word, sum(amounts)

    def totals(self, word, amounts):
        yield None, (sum(amounts), word)

    def largest(self, _, pairs):
        count, word = max(pairs)
        yield word, count


if __name__ == "__main__":
    MostUsed.run()
