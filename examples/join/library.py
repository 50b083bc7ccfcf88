"""Join of two tables on their first column, as a library: the user's values are sorted before the orders."""
import os
import pathlib
import sys

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


def tagged(key, rest):
    table = "A" if "users" in os.path.basename(os.environ["mapreduce_map_input_file"]) else "B"
    yield key, f"{table}\t{rest}"


def joined(key, rows):
    name = None
    for table, _, rest in (row.partition("\t") for row in rows):
        if table == "A":
            name = rest
        elif name is not None:
            yield name, rest


job = mr.Job(
    HERE / "input", mapper=tagged, reducer=joined, reduces=2, codec=mr.text, sort_values=lambda row: row.partition("\t")[0]
)
for line in job.run().lines():
    sys.stdout.buffer.write(line + b"\n")
