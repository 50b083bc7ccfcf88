"""As jobs over Common Crawl are: input lines name WARC files; an archive of names travels."""

import os

from mrjob.job import MRJob
from mrjob.protocol import RawValueProtocol
from warcio.archiveiterator import ArchiveIterator


class ServerCount(MRJob):
    INPUT_PROTOCOL = RawValueProtocol

    def mapper_init(self):
        with open(os.path.join("names", "aliases")) as file:
            self.aliases = dict(line.split() for line in file)

    def mapper(self, _, line):
        with open(line.strip(), "rb") as stream:
            for record in ArchiveIterator(stream):
                if record.rec_type != "response":
                    self.increment_counter("warc", "other records")
                    continue
                server = record.http_headers.get_header("Server", "(none)")
                yield self.aliases.get(server, server), 1
                self.increment_counter("warc", "responses")

    def combiner(self, server, amounts):
        yield server, sum(amounts)

    reducer = combiner


if __name__ == "__main__":
    ServerCount.run()
