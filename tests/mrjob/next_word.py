"""How often each word follows another, as a share: values that come sorted, two reducers."""

import itertools

from mrjob.job import MRJob


class NextWord(MRJob):
    SORT_VALUES = True

    def jobconf(self):
        return {**super().jobconf(), "mapreduce.job.reduces": 2}

    def mapper(self, _, line):
        words = line.lower().split()
        for word, following in itertools.pairwise(words):
            yield word, ("A: all", 1)
            yield word, ("B: " + following, 1)

    def combiner(self, word, pairs):
        totals = {}
        for following, amount in pairs:
            totals[following] = totals.get(following, 0) + amount
        for following, amount in totals.items():
            yield word, (following, amount)

    def reducer(self, word, pairs):
        # Sorted values: what follows comes behind the total.
        total, current, amount = 0, None, 0
        for following, number in pairs:
            if following == "A: all":
                assert current is None, "the total comes first"
                total += number
                continue
            if following != current:
                if current is not None:
                    yield (word, current[3:]), amount / total
                current, amount = following, 0
            amount += number
        if current is not None:
            yield (word, current[3:]), amount / total


if __name__ == "__main__":
    NextWord.run()
