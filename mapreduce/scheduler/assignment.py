"""Free slots meet idle tasks.

A slot that comes free is offered to the jobs in their order (priority, then first come);
each gives a map near its data, else a reduce if its phase allows, else lets it pass.
When new work appears, all workers with room are asked in rounds, one slot each, so that
a small job spreads over the cluster. Never kills, except to break a deadlock.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mrstream.mapreduce.scheduler import attempts
from mrstream.mapreduce.scheduler.commands import Locality
from mrstream.mapreduce.scheduler.ids import TaskKind, WorkerId
from mrstream.mapreduce.scheduler.locality import PASSED_OVER_MAX
from mrstream.mapreduce.scheduler.phases import Job
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import Attempt, Task, TaskState
from mrstream.mapreduce.scheduler.workers import Worker

# While maps wait for slots, reduces may hold at most this share of slots that both could use.
REDUCE_SHARE_WHILE_MAPS_WAIT = 0.5
# When maps starve behind waiting reduces, this share of all slots is taken back for them.
RELIEF_SHARE = 0.25


def fill_slots(state: State) -> None:
    """Give tasks to slots after an event; cheap when nothing came free and nothing came idle."""
    if state.has_new_work:
        _ask_everyone(state)
        _relieve_starved_maps(state)
    elif state.freed:
        for worker in state.freed.values():
            # It may have left during this very event.
            if worker.worker_id in state.workers.by_id:
                while _offer(state, worker):
                    pass
    if state.has_opened_gate:
        _ask_everyone(state)


def _ask_everyone(state: State) -> None:
    asked = _workers_near_new_work(state)
    while asked and any(job.has_pending() for job in state.queue):
        asked = [worker for worker in asked if _offer(state, worker)]


def _workers_near_new_work(state: State) -> list[Worker]:
    wants_map = any(job.pending_maps.count for job in state.queue)
    wants_reduce = any(job.pending_reduce_count and job.may_start_reduces() for job in state.queue)
    free: dict[WorkerId, Worker] = {}
    if wants_map:
        free |= state.workers.free_for_map
    if wants_reduce:
        free |= state.workers.free_for_reduce
    everyone = list(free.values())
    if not state.wanted_hosts:
        return everyone
    hosts = dict.fromkeys(state.wanted_hosts)
    near = [worker for worker in everyone if worker.host in hosts]
    return near + [worker for worker in everyone if worker.host not in hosts]


def _offer(state: State, worker: Worker) -> bool:
    """Offer one slot of a worker to the jobs in order; say whether one took it."""
    has_map_room = worker.has_room(TaskKind.MAP)
    has_reduce_room = worker.has_room(TaskKind.REDUCE)
    if not has_map_room and not has_reduce_room:
        return False
    for job in state.queue:
        if not job.has_pending() or state.now_s < job.held_until_s:
            continue
        if not job.may_use(worker.worker_id):
            continue
        if has_map_room and job.pending_maps.count and job.maps.may_run_more():
            choice = job.pending_maps.choose(worker, state.workers, state.now_s)
            if choice is not None:
                task, locality = choice
                attempts.start(state, job, task, worker, locality, is_backup=False)
                return True
        if has_reduce_room and _may_start_reduce(state, job, worker):
            reduce = _first_reduce(state, job, worker)
            if reduce is not None:
                attempts.start(state, job, reduce, worker, Locality.NONE, is_backup=False)
                return True
    return False


def _may_start_reduce(state: State, job: Job, worker: Worker) -> bool:
    if not (job.pending_reduce_count and job.may_start_reduces() and job.reduces.may_run_more()):
        return False
    if job.pending_maps.count and worker.shares_slots:
        # A reduce that waits for maps must not sit in the slot that they need.
        share = REDUCE_SHARE_WHILE_MAPS_WAIT
        return state.workers.running_reduces < int(
            state.workers.slots_total * share
        ) and worker.running_reduces < max(1, int(worker.slots * share))
    return True


def _first_reduce(state: State, job: Job, worker: Worker) -> Task | None:
    """Take the first idle reduce that has not failed on this worker."""
    heap = job.pending_reduces
    passed_over: list[int] = []
    found = None
    while heap and len(passed_over) < PASSED_OVER_MAX:
        index = heappop(heap)
        task = job.reduces.tasks[index]
        if task.state is not TaskState.IDLE:
            continue
        if not state.workers.should_avoid(worker, task, job.settings.workers_max):
            found = task
            break
        passed_over.append(index)
    for index in passed_over:
        heappush(heap, index)
    return found


def _relieve_starved_maps(state: State) -> None:
    """Kill young reduces whose maps cannot run because reduces hold every slot.

    Needed when maps must be run again after reduces took their slots; without it a small
    cluster would wait forever. Only slots that one of these maps would take are taken back: a
    map that failed on a worker is not helped by room there.
    """
    workers = state.workers
    if not workers.running_reduces:
        return
    wanted = max(1, int(workers.slots_total * RELIEF_SHARE))
    for job in state.queue:
        if not job.pending_maps.count or state.now_s < job.held_until_s:
            continue
        # Free slots that no map took: it waits for one near its data, or it failed there, and
        # then only a running map promises that another slot will come free.
        if workers.free_for_map and (
            workers.running_maps or job.pending_maps.wait_ends_at_s(state.now_s) is not None
        ):
            continue
        dying = sum(attempt.is_dying for attempt in state.attempts.values())
        room = min(wanted, job.pending_maps.count) - workers.running_maps - dying
        if room <= 0:
            continue
        for owner, attempt in _in_the_way(state, job)[:room]:
            attempts.kill_running(state, owner, attempt, "makes room for a map that must run first")


def _in_the_way(state: State, job: Job) -> list[tuple[Job, Attempt]]:
    """Find waiting reduces in slots that idle maps of a job would take, the youngest first.

    Its own come before those of the jobs behind it. Without the latter, two jobs could each hold
    the only slot that the other's map may use.
    """
    found: list[tuple[Job, Attempt]] = []
    for owner in state.queue[state.queue.index(job) :]:
        waiting = [
            attempt
            for attempt in owner.reduces.running.values()
            if not attempt.is_shuffled
            and attempt.task.granted is not attempt
            and _would_take(state, job, state.workers.by_id[attempt.worker_id])
        ]
        waiting.sort(key=lambda attempt: (attempt.progress, -attempt.started_at_s))
        found += [(owner, attempt) for attempt in waiting]
    return found


def _would_take(state: State, job: Job, worker: Worker) -> bool:
    return (
        worker.shares_slots
        and worker.is_trusted
        and worker.running_maps < worker.map_slots
        and job.pending_maps.has_one_for(worker, state.workers)
    )
