"""Tasks of one phase of one job: who has each, and which one a status speaks of.

T1: a task is given to a second worker only when its first is dead (P4-23). T2: a phase ends only
when every task is finished and nobody alive still writes its files.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Sequence

import msgspec

from mrstream.mapreduce.p4.brain.layout import is_of_another
from mrstream.mapreduce.p4.brain.messages import NewSortJob, NewWorkerJob


class Task(msgspec.Struct, eq=False):
    """Some files to be made by one worker."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    executable: str = ""
    """Empty for a sort."""
    output_directory: str = ""
    owner: int | None = None
    holders: tuple[int, ...] = ()
    """Every worker that it was ever given to: only these can have finished it."""
    is_written: bool = False
    """A worker that was given up has finished it after all, while another has it."""
    is_done: bool = False

    def order(self, pid: int) -> NewWorkerJob | NewSortJob:
        """The message that gives it to a worker."""
        if self.executable:
            return NewWorkerJob(list(self.inputs), self.executable, self.output_directory, pid)
        return NewSortJob(list(self.inputs), self.outputs[0], pid)


class Phase:
    """The tasks of a phase that are not finished, and those that wait for a worker."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tuple(tasks)
        self.waiting: deque[Task] = deque(tasks)
        self.left = len(self.tasks)
        self._by_name = {posixpath.basename(p): task for task in tasks for p in task.outputs}

    def give(self, task: Task, pid: int) -> None:
        """A task that waited has an owner now."""
        assert task.owner is None and not task.is_done, "T1: it has an owner, or needs none"
        task.owner = pid
        task.holders += (pid,)

    def finish(self, task: Task) -> None:
        """A task needs nobody any more."""
        assert not task.is_done, "a task is finished once"
        task.is_done, task.owner = True, None
        self.left -= 1

    def take_back(self, task: Task) -> None:
        """The owner of a task is dead: it waits again, unless an owner before has finished it."""
        task.owner = None
        if task.is_written:
            self.finish(task)
        else:
            self.waiting.append(task)

    def is_ours(self, outputs: Sequence[str]) -> bool:
        """Whether a status may be of this phase, as far as its paths tell."""
        expected = self.tasks[0].outputs[0] if self.tasks else ""
        return not any(is_of_another(path, expected) for path in outputs)

    def spoken_of(self, outputs: Sequence[str], given: Sequence[Task]) -> Task | None:
        """Find the task that a status of a worker means: by base names, which no two tasks share;
        if none is known, the oldest that the worker has (R3)."""
        named = [self._by_name.get(posixpath.basename(path)) for path in outputs]
        known = [task for task in named if task is not None]
        if known:
            return next((task for task in known if task in given), known[0])
        return given[0] if given else None
