"""Words of a file counted by a Luigi task on Hadoop's commands."""

import luigi
import luigi.contrib.hadoop
import luigi.contrib.hdfs


class Lines(luigi.ExternalTask):
    path = luigi.Parameter()

    def output(self):
        return luigi.contrib.hdfs.HdfsTarget(self.path)


class Words(luigi.contrib.hadoop.JobTask):
    source = luigi.Parameter()
    target = luigi.Parameter()
    n_reduce_tasks = 2  # Luigi's own is 25

    def requires(self):
        return Lines(self.source)

    def output(self):
        return luigi.contrib.hdfs.HdfsTarget(self.target)

    def mapper(self, line):
        for word in line.split():
            yield word, 1

    def combiner(self, word, amounts):
        yield word, sum(amounts)

    def reducer(self, word, amounts):
        yield word, sum(amounts)
