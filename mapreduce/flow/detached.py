"""`python -m mrstream.mapreduce.flow.detached ID`: runs a flow as the program of a map.

Started on a host of the cluster by a job of one attempt, and elsewhere if that host is lost. Reads
the flow out of the dfs, raises its fence, so that whoever ran it before can change nothing more,
ends what that one left running, and goes on. Ends with 1 if the flow failed.
"""

from __future__ import annotations

import os
import sys
import tempfile

from mrstream.cluster.config.config import current_cluster
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.dfs.client.client import client_of
from mrstream.dfs.client.fence import SEQUENCER, fences_of_environment, format_fences, within
from mrstream.mapreduce.flow import detach, start
from mrstream.mapreduce.flow.dfs_book import DfsFlowBook
from mrstream.mapreduce.flow.runner import FlowRunner

HOST_DIRECTORY = "MRSTREAM_HOST_DIRECTORY"
"""Set by a worker: where its host keeps the cluster's file and secret."""


def main(flow_id: str) -> int:
    """Run a flow to its end; return the exit status."""
    sys.stdin.buffer.read()  # a job has an input: the flow's id, which is known
    directory = os.environ.get(HOST_DIRECTORY, "")
    if not directory:
        raise UserError("a detached flow runs as a task of a cluster, and this is none")
    with tempfile.TemporaryDirectory(prefix="mrstream-flow-") as room:
        os.environ["MRSTREAM_HOME"] = detach.home_of_host(directory, room)
        os.environ.pop("MRSTREAM_CLUSTER", None)
        beside = os.path.dirname(sys.executable)
        os.environ["PATH"] = f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        cluster = current_cluster()
        assert cluster is not None, "its file is there"
        with client_of(cluster) as asking:
            fence = DfsFlowBook(flow_id, asking).next_fence()
        # For all that this process, its commands and its jobs change in the dfs from now on, beside
        # the locks that the flow was handed over under.
        os.environ[SEQUENCER] = format_fences(within((fence,), fences_of_environment()))
        with client_of(cluster) as client:
            client.raise_fence(fence)
            book = DfsFlowBook(flow_id, client)
            state = book.read_state()
            os.environ["LOGNAME"] = state.user or os.environ.get("LOGNAME", "")
            detach.end_orphans(flow_id, cluster)
            return 0 if FlowRunner(state, start.files_of(state), start.say, book).run() else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except ClusterError as error:
        print(f"mrstream: {error}", file=sys.stderr)
        sys.exit(1)
