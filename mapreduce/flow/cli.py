"""`mrstream flow run|resume|list|status|logs|kill|remove`: chains of jobs from a file.

A root: it may import anything, and nothing imports it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mrstream.cluster.errors import INTERRUPTED, UserError
from mrstream.cluster.terminal import show
from mrstream.cluster.units import duration
from mrstream.cluster.user import user_name
from mrstream.mapreduce.flow import start
from mrstream.mapreduce.flow.book import (
    FlowBook,
    FlowIsRunning,
    FlowState,
    NoSuchFlow,
    all_flows,
)
from mrstream.mapreduce.flow.brain.messages import Cleared, Completed, Record, Started
from mrstream.mapreduce.flow.runner import FlowRunner, dry_run, same_flow

if TYPE_CHECKING:
    from mrstream.cluster.config.config import Cluster
    from mrstream.mapreduce.flow.dfs_book import DfsFlowBook

USAGE = """usage: mrstream flow run FILE [-v NAME=VALUE]… [-steps STEP,…] [--dry-run] [--detach]
                                 [--cluster NAME]
       mrstream flow resume ID           go on with what is incomplete or has changed
       mrstream flow list                the flows of this user, and the detached ones
       mrstream flow status ID           how a flow is, step by step (also: show)
       mrstream flow logs ID [STEP]      what its steps said
       mrstream flow kill ID             end a detached flow and its jobs; it can be resumed
       mrstream flow remove ID           forget a flow, and its results without a name

With -steps these steps run, and those that they need; --dry-run shows which, and runs nothing.
With --detach the cluster runs the flow: this command returns at once, and the flow goes on when
this machine does not, and elsewhere when the host that runs it is lost.

FILE is YAML: steps with the option names of `mrstream -help`, ${step} for the output of another
step, `after`, `command`, `until` and `first` for loops, and `variables`; see docs/guide/flows.md.
Exit status: 0 if the flow succeeded, 1 if it failed, 130 if it was interrupted."""


def main(argv: Sequence[str]) -> int:
    """Do what the words ask for; give the exit status."""
    words = list(argv)
    verbs = {
        "run": _run, "resume": _resume, "list": _list, "show": _show, "status": _show,
        "logs": _logs, "kill": _kill, "remove": _remove,
    }  # fmt: skip
    verb = words[0].lstrip("-") if words else ""
    if verb in ("help", "h") or words[1:2] in (["-help"], ["--help"], ["-h"]):
        print(USAGE)
        return 0
    if verb not in verbs:
        print(USAGE, file=sys.stderr)
        return 1
    return verbs[verb](words[1:])


def _run(words: list[str]) -> int:
    variables: dict[str, str] = {}
    cluster: str | None = None
    chosen: list[str] = []
    is_dry = is_detached = False
    paths = []
    while words:
        word = words.pop(0)
        if word in ("--dry-run", "-dry-run"):
            is_dry = True
        elif word in ("--detach", "-detach"):
            is_detached = True
        elif word in ("-v", "--variable", "--cluster", "-cluster", "-steps", "--steps"):
            if not words:
                raise UserError(f"mrstream flow run: {word} needs a value")
            value = words.pop(0)
            if word.endswith("cluster"):
                cluster = value
                continue
            if word.endswith("steps"):
                chosen += [name.strip() for name in value.split(",") if name.strip()]
                if not chosen:
                    raise UserError(f"mrstream flow run: {word} needs the name of a step")
                continue
            name, equals, text = value.partition("=")
            if not equals:
                raise UserError(f"mrstream flow run: {word} {value} must be NAME=VALUE")
            variables[name] = text
        else:
            paths.append(word)
    if len(paths) != 1:
        raise UserError("mrstream flow run needs one FILE\n" + USAGE)
    state = start.state_of_file(paths[0], variables, cluster, chosen)
    if is_dry:
        print("\n".join(dry_run(state, start.files_of(state))))
        return 0
    if is_detached:
        from mrstream.mapreduce.flow import detach  # brings the dfs's client with it

        state.user = user_name()
        detach.detach(state, _cluster(cluster), start.say)
        print(state.plan.flow_id)
        return 0
    return _go(state)


def _resume(words: list[str]) -> int:
    flow_id = _only(words, "resume")
    if flow_id not in all_flows():
        return _resume_detached(flow_id)
    kept = FlowBook(flow_id).read_state()
    if not kept.source:
        raise UserError(
            f"{kept.plan.flow_id} came from Python: resume it there, flow.resume({words[0]!r})"
        )
    os.chdir(kept.working_directory)
    state = start.state_of_file(kept.source, kept.variables, kept.cluster, kept.chosen)
    return _go(same_flow(state, kept.plan.flow_id))


def _resume_detached(flow_id: str) -> int:
    from mrstream.mapreduce.flow import detach

    with _detached(flow_id) as (book, cluster):
        state = book.read_state()
        if detach.is_running(book, cluster):
            raise FlowIsRunning(f"{flow_id} is being run by {book.job_id}")
        detach.submit(book, state.plan, cluster, start.say)
    return 0


def _cluster(named: str | None = None) -> Cluster:
    from mrstream.cluster.config.config import current_cluster  # brings a YAML parser with it

    cluster = current_cluster(named)
    if cluster is None:
        raise UserError("a detached flow needs a cluster, and there is no current one")
    return cluster


@contextlib.contextmanager
def _detached(flow_id: str) -> Iterator[tuple[DfsFlowBook, Cluster]]:
    """Yield the book of a flow in the dfs."""
    from mrstream.dfs.client.client import client_of
    from mrstream.mapreduce.flow.dfs_book import DfsFlowBook

    if start.is_local(None):
        raise NoSuchFlow(f"there is no flow {flow_id}; `mrstream flow list` shows those there are")
    cluster = _cluster()
    with client_of(cluster) as client:
        yield DfsFlowBook(flow_id, client), cluster


def _go(state: FlowState) -> int:
    flow_id = state.plan.flow_id
    print(f"{flow_id}: {state.plan.name}", file=sys.stderr, flush=True)
    try:
        succeeded = FlowRunner(state, start.files_of(state), start.say).run()
    except KeyboardInterrupt:
        print(f"Interrupted; `mrstream flow resume {flow_id}` goes on", file=sys.stderr)
        return INTERRUPTED
    if not succeeded:
        print(f"the flow failed; `mrstream flow resume {flow_id}` goes on", file=sys.stderr)
        return 1
    return 0


def _list(words: list[str]) -> int:
    if words:
        raise UserError("mrstream flow list takes no words")
    print(f"{'FlowId':<28}{'State':<13}{'Began':<21}{'Took':<10}Name")
    for flow_id in all_flows():
        state = FlowBook(flow_id).read_state()
        print(f"{flow_id:<28}{_state_of(state):<13}{_moment(state.began_at_s):<21}"
              f"{_took(state):<10}{state.plan.name}")  # fmt: skip
    if not start.is_local(None):
        _list_detached()
    return 0


def _list_detached() -> None:
    from mrstream.dfs.client.client import client_of
    from mrstream.mapreduce.flow import detach
    from mrstream.mapreduce.flow.dfs_book import DfsFlowBook, detached_flows

    cluster = _cluster()
    with client_of(cluster) as client:
        for flow_id in detached_flows(client):
            book = DfsFlowBook(flow_id, client)
            state = book.read_state()
            known = _state_word(state, is_held=detach.is_running(book, cluster))
            print(f"{flow_id:<28}{known:<13}{_moment(state.began_at_s):<21}"
                  f"{_took(state):<10}{state.plan.name}")  # fmt: skip


def _show(words: list[str]) -> int:
    flow_id = _only(words, "status")
    if flow_id in all_flows():
        own = FlowBook(flow_id)
        state = own.read_state()
        _print_flow(state, _state_of(state), own.records())
        return 0
    from mrstream.mapreduce.flow import detach

    with _detached(flow_id) as (book, cluster):
        state = book.read_state()
        is_running = detach.is_running(book, cluster)
        _print_flow(state, _state_word(state, is_held=is_running), book.records(), book.job_id)
    return 0


def _print_flow(state: FlowState, known: str, records: Sequence[Record], job_id: str = "") -> None:
    print(f"Flow: {state.plan.flow_id}")
    print(f"Name: {state.plan.name}")
    print(f"State: {known}")
    if job_id:
        print(f"Run by: {job_id}")
    print(f"Began: {_moment(state.began_at_s)} {_took(state)}".rstrip())
    if state.reason:
        print(f"Reason: {state.reason}")
    for step in state.plan.steps:
        place = step.output or _kept_place(step.name, records)
        where = f" → {place}" if place else ""
        print(f"  {step.name}: {_step_text(step.name, records)}{where}")


def _logs(words: list[str]) -> int:
    flow_id = _only(words[:1], "logs")
    is_own = flow_id in all_flows()
    if is_own:
        book = FlowBook(flow_id)
        _print_logs(words[1:], book.records(), book.read_log)
        return 0
    with _detached(flow_id) as (kept, _):
        kept.read_state()
        _print_logs(words[1:], kept.records(), kept.read_log)
    return 0


def _print_logs(chosen: list[str], records: Sequence[Record], read: Callable[[str], bytes]) -> None:
    """Print what steps said, in the order in which they began."""
    keys = list(dict.fromkeys(r.key for r in records if isinstance(r, Started)))
    if chosen:
        keys = [key for key in keys if key in chosen or key.partition("#")[0] in chosen]
        if not keys:
            raise UserError(f"no step {' '.join(chosen)} has begun")
    for key in keys:
        print(f"==> {key} <==")
        sys.stdout.flush()
        show(sys.stdout, read(key))


def _kill(words: list[str]) -> int:
    from mrstream.mapreduce.flow import detach

    flow_id = _only(words, "kill")
    if flow_id in all_flows():
        raise UserError(f"{flow_id} is not detached: Ctrl-C ends it where it runs")
    with _detached(flow_id) as (book, cluster):
        book.read_state()
        if not detach.kill(book, cluster):
            raise UserError(f"{flow_id} does not run")
    print(f"{flow_id} is killed; `mrstream flow resume {flow_id}` goes on", file=sys.stderr)
    return 0


def _step_text(name: str, records: Sequence[Record]) -> str:
    mine = [r for r in records if not isinstance(r, Cleared) and r.key.partition("#")[0] == name]
    starts = sum(isinstance(record, Started) for record in mine)
    if not mine:
        return "waits"
    times = f", started {starts} times" if starts > 1 else ""
    return ("complete" if isinstance(mine[-1], Completed) else "started") + times


def _kept_place(name: str, records: Sequence[Record]) -> str:
    """Return where the output of a step lies that has no name of its own; empty: it is gone."""
    place = ""
    for record in records:
        if isinstance(record, Cleared):
            place = "" if place in record.places else place
        elif isinstance(record, Completed) and record.key.partition("#")[0] == name:
            place = record.place
    return place


def _remove(words: list[str]) -> int:
    flow_id = _only(words, "remove")
    if flow_id in all_flows():
        own = FlowBook(flow_id)
        with own.held():
            own.remove()
        return 0
    from mrstream.mapreduce.flow import detach

    with _detached(flow_id) as (book, cluster):
        book.read_state()
        if detach.is_running(book, cluster):
            raise FlowIsRunning(f"{flow_id} runs: `mrstream flow kill {flow_id}` ends it")
        book.remove()
    return 0


def _state_of(state: FlowState) -> str:
    return _state_word(state, is_held=FlowBook(state.plan.flow_id).is_held())


def _state_word(state: FlowState, *, is_held: bool) -> str:
    return "stopped" if state.state == "running" and not is_held else state.state


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M:%S") if at_s else ""


def _took(state: FlowState) -> str:
    return duration(state.ended_at_s - state.began_at_s) if state.ended_at_s else ""


def _only(words: list[str], verb: str) -> str:
    if len(words) != 1 or not words[0] or os.sep in words[0] or words[0].startswith("."):
        raise UserError(f"mrstream flow {verb} needs the id of one flow")
    return words[0]
