"""Hands a flow over to the cluster: it goes on when the client does not (`flow run --detach`).

Stores what its steps name of this machine in the dfs and says so in their words; then submits a job
of one map, whose program runs the flow (`detached`). Asked later, says whether it runs, ends it, or
submits it again. Never runs a step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.errors import UserError
from mrstream.dfs.client.client import DfsClient, client_of
from mrstream.mapreduce.client import environment_staging, staging
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dfs_layout import environment_facts
from mrstream.mapreduce.flow.book import FlowState
from mrstream.mapreduce.flow.brain.plan import JOB, FlowPlan, Step
from mrstream.mapreduce.flow.dfs_book import DfsFlowBook
from mrstream.mapreduce.flow.digests import command_of_step
from mrstream.mapreduce.flow.runner import Say
from mrstream.mapreduce.flow_rows import flow_of, is_runner
from mrstream.mapreduce.job.job import spec_from
from mrstream.mapreduce.launch import Launch, complaint_in
from mrstream.mapreduce.protocol import KillJob, ListJobs, WatchCluster
from mrstream.mapreduce.snapshot import JobRow
from mrstream.streaming import classes
from mrstream.streaming.conf.jobconf import setting_name
from mrstream.streaming.conf.properties import from_wire

_SHIPS = ("files", "archives", "file", "cacheFile", "cacheArchive")
_READS_HERE = ("conf", "additionalconfspec")


class CannotDetach(UserError):
    """A flow that cannot run without this machine, or on this cluster."""


def detach(state: FlowState, cluster: Cluster, say: Say) -> None:
    """Store the flow in the dfs and have the cluster run it."""
    dfs_files.serve(cluster)
    with client_of(cluster) as client:
        steps = tuple(_portable(step, client, say) for step in state.plan.steps)
        plan = msgspec.structs.replace(state.plan, steps=steps)
        book = DfsFlowBook(plan.flow_id, client)
        book.make(msgspec.structs.replace(state, plan=plan, working_directory="", cluster=None))
        submit(book, plan, cluster, say, state.cluster)


def submit(
    book: DfsFlowBook, plan: FlowPlan, cluster: Cluster, say: Say, named: str | None = None
) -> None:
    """Submit the job that runs a stored flow; `named` is the cluster as the user named it."""
    with JobClient(cluster) as jobs:
        _require_slots(jobs)
    settings = {
        "job_name": f"flow {plan.name}",
        "map_attempts_max": "1",  # a flow that failed has failed; a lost host is no failure
        "map_speculative": "false",
        "task_timeout_s": "0",
    }
    words = [w for name, value in settings.items() for w in ("-D", f"{setting_name(name)}={value}")]
    program = f'exec "$MRSTREAM_PYTHON" -P -m mrstream.mapreduce.flow.detached {plan.flow_id}'
    words += ["-mapper", f"sh -c '{program}'", "-numReduceTasks", "0", "-background"]
    words += ["-input", f"{book.directory}/id", "-output", book.new_run()]
    launch = Launch([*words, *(["-cluster", named] if named else [])])
    launch.wait()
    if launch.status != 0 or not launch.job_id:
        raise CannotDetach(f"the flow cannot be submitted: {complaint_in(list(launch.lines))}")
    book.job_id = launch.job_id
    say(f"{plan.flow_id} runs on the cluster, by {launch.job_id}")


def _require_slots(jobs: JobClient) -> None:
    """A flow holds a slot while its steps need others: refuse it where that would be for ever."""
    snapshot = jobs.call(WatchCluster())
    slots = sum(row.slots for row in snapshot.hosts.rows if row.state == "up")
    flows = sum(is_runner(row) for row in jobs.call(ListJobs(False)))
    if slots < flows + 2:
        raise CannotDetach(
            f"the cluster has {slots} slots, and {flows} detached flows hold one each: this one "
            "would have none for its steps; run it without --detach, or with more slots"
        )


# --- words that mean the same elsewhere


def _portable(step: Step, client: DfsClient, say: Say) -> Step:
    """Return a step that names nothing of this machine."""
    if step.kind != JOB:
        return step
    command = command_of_step(step)
    for word in step.words:
        if word.lstrip("-") in _READS_HERE and word.startswith("-"):
            raise CannotDetach(
                f"step {step.name!r}: {word} reads a file of this machine, which a detached flow "
                "does not have; give its properties by D:"
            )
    items = staging.stage(command.shipped, client)
    words = list(_without(step.words, (*_SHIPS, "env")))
    for before, after in zip(command.shipped, items, strict=True):
        for name in {from_wire(before.word), from_wire(before.source)} - {
            "",
            from_wire(after.link),
        }:
            words = [_renamed(word, name, from_wire(after.link)) for word in words]
    for option, chosen in (("-files", False), ("-archives", True)):
        entries = [
            f"{from_wire(item.source)}#{from_wire(item.link)}"
            for item in items
            if item.archive is chosen
        ]
        words += [option, ",".join(entries)] if entries else []
    if command.mapper.builtin == classes.SAW:  # its file stays here: the text travels
        conf = spec_from(command).conf()
        for name, value in (("saw_program", conf.saw_program), ("saw_protos", conf.saw_protos)):
            words += ["-D", f"{setting_name(name)}={value}"] if value else []
    if command.environment is not None:
        spec = environment_staging.stage(spec_from(command), client, say)
        assert spec.environment is not None
        words += ["-env", f"dfs://{environment_facts(spec.environment.key)}"]
    return msgspec.structs.replace(step, words=tuple(words))


def _renamed(text: str, name: str, link: str) -> str:
    """Return a command that names a file as tasks find it."""
    return " ".join(link if word == name else word for word in text.split(" "))


def _without(words: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """Yield the words without these options and their values."""
    skips = False
    for word in words:
        if word.startswith("-"):
            skips = word.lstrip("-") in options
        if not skips:
            yield word


# --- asked later


def jobs_of(flow_id: str, rows: Sequence[JobRow]) -> list[JobRow]:
    return [row for row in rows if flow_of(row) == flow_id]


def is_running(book: DfsFlowBook, cluster: Cluster) -> bool:
    """Whether a job runs this flow."""
    with JobClient(cluster) as jobs:
        return any(is_runner(row) for row in jobs_of(book.flow_id, jobs.call(ListJobs(False))))


def kill(book: DfsFlowBook, cluster: Cluster) -> bool:
    """End a flow and its jobs; says whether one ran."""
    with JobClient(cluster) as jobs:
        mine = jobs_of(book.flow_id, jobs.call(ListJobs(False)))
        for row in sorted(mine, key=lambda row: not is_runner(row)):  # first who starts others
            jobs.call(KillJob(row.key, f"{book.flow_id} is killed"))
    if not mine:
        return False
    with client_of(cluster, fence=book.next_fence()) as client:
        fenced = DfsFlowBook(book.flow_id, client)
        state = fenced.read_state()
        state.state, state.reason = "killed", "killed on request"
        fenced.write_state(state)
    return True


def end_orphans(flow_id: str, cluster: Cluster) -> None:
    """End the steps that a runner before started and did not live to see: they run again."""
    with JobClient(cluster) as jobs:
        for row in jobs_of(flow_id, jobs.call_patiently(ListJobs(False))):
            if not is_runner(row):
                jobs.call_patiently(KillJob(row.key, "its flow goes on elsewhere"))


def home_of_host(directory: str, room: str) -> str:
    """Make a state directory in which this host's own cluster is the current one."""
    from mrstream.cluster.config.config import load

    name = load(os.path.join(directory, "cluster.yaml")).name
    place = os.path.join(room, "clusters", name)
    os.makedirs(place, mode=0o700)
    for file in ("cluster.yaml", "identity.json"):
        os.symlink(os.path.join(directory, file), os.path.join(place, file))
    with open(os.path.join(room, "current"), "w", encoding="utf-8") as current:
        current.write(f"{name}\n")
    return room
