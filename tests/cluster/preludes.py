"""Code that a daemon runs before it starts: faults that wait for their moment.

`STOPS` with the entries of `STAGES` or `MASTER_MOMENTS` lets a test stop a process exactly there;
the others repeat or cut what processes say to each other.
"""

from __future__ import annotations

from collections.abc import Mapping

# Runs in a daemon before it starts. `stop_at(stage)`: where the test has asked for a stop there,
# say that we are there, and go no further until the test sends us on. What else then happens to
# this process, or to another, is the test's business: it knows exactly how far the job has come.
STOPS = """
import os, sys, time
_host = sys.argv[sys.argv.index("--host") + 1]
def stop_at(stage):
    if not os.path.exists({shared!r} + "/stop at " + stage):
        return
    here = {shared!r} + f"/{{stage}} reached {{os.getpid()}} {{time.monotonic_ns()}}@{{_host}}"
    open(here, "x").close()
    while os.path.exists(here):
        time.sleep(0.01)
def before(owner, name, stage):
    whole = getattr(owner, name)
    def stopped(*words, **more):
        stop_at(stage)
        return whole(*words, **more)
    setattr(owner, name, stopped)
def after(owner, name, stage):
    whole = getattr(owner, name)
    def stopped(*words, **more):
        result = whole(*words, **more)
        stop_at(stage)
        return result
    setattr(owner, name, stopped)
"""

# Everything that a worker reports is said twice; each saying is a request of its own.
SAID_TWICE = """
from mrstream.cluster.wire.channel import Channel
said = {"AttemptEnded", "AttemptWantsCommit", "AttemptShuffled", "FetchTrouble", "Register"}
whole = Channel.call
def call(self, request, *words, **more):
    if type(request).__name__ in said:
        whole(self, request, *words, **more).add_done_callback(lambda done: done.exception())
    return whole(self, request, *words, **more)
Channel.call = call
"""

# Everything that the master tells a worker is told twice.
TOLD_TWICE = """
from mrstream.cluster.wire.server import Peer
whole = Peer.push
def push(self, message):
    whole(self, message)
    whole(self, message)
Peer.push = push
"""


def _moment(when: str, module: str, owner: str, method: str) -> str:
    """Code that stops a process before or after a method; the stage's name goes into the braces."""
    return f"from {module} import {owner}; {when}({owner}, {method!r}, {{}})"


STAGES: Mapping[str, str] = {
    "map": _moment("before", "mrstream.mapreduce.dataflow.spill", "MapOutput", "feed"),
    "spill": _moment("before", "mrstream.mapreduce.dataflow.spill", "MapOutput", "_finish"),
    "segment complete": _moment(
        "after", "mrstream.mapreduce.worker.segment_store", "SegmentStore", "keep"
    ),
    "shuffle": _moment("before", "mrstream.mapreduce.dataflow.fetcher", "Fetcher", "_have"),
    "merge": _moment("after", "mrstream.mapreduce.attempt.reduce_task", "ReduceTask", "_gather"),
    "reduce": _moment("before", "mrstream.mapreduce.attempt.final_output", "CommandOutput", "feed"),
    "output complete": _moment(
        "after", "mrstream.mapreduce.attempt.final_output", "CommandOutput", "finish"
    ),
    "before commit": _moment("before", "mrstream.mapreduce.worker.job_here", "JobHere", "commit"),
    "after commit": _moment("after", "mrstream.mapreduce.worker.job_here", "JobHere", "commit"),
}
"""Where a worker or one of its attempts can be stopped, in the order of a record's path."""

MASTER_MOMENTS: Mapping[str, str] = {
    "output is made": _moment(
        "before", "mrstream.mapreduce.master.job_output", "JobOutput", "set_up"
    ),
    "output is final": _moment(
        "before", "mrstream.mapreduce.master.job_output", "JobOutput", "commit_job"
    ),
    "record": (
        "from mrstream.cluster.journal.journal import Journal\n"
        "whole, seen = Journal.append, []\n"
        "def append(*words):\n"
        "    seen.append(1)\n"
        "    stop_at(f'record {{len(seen)}}')\n"
        "    return whole(*words)\n"
        "Journal.append = append"
    ),
}
"""Where the job master can be stopped: `record 4` is its fourth record since it started."""

# The connection breaks just before a certain call that is no heartbeat.
CUT_AT = """
from mrstream.cluster.wire.channel import Channel
whole = Channel.call
calls = 0
def call(self, request, *words, **more):
    global calls
    if type(request).__name__ != "Heartbeat":
        calls += 1
        if calls == {number}: self.close()
    return whole(self, request, *words, **more)
Channel.call = call
"""
