"""Stage 10: the output of attempts becomes files of the output directory, each visible only when
complete.

Attempts write to `OUT/_temporary/0/_temporary/ATTEMPT/`; a committed task's files are renamed,
never copied, to where readers look (D3). Algorithm 2 moves them into OUT at the task's commit,
algorithm 1 into `_temporary/0/TASK` and all of them at the job's. Knows nothing of formats or
schedules: who may commit is decided by the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.files import Files, FileStatus, is_object_store, join
from mrstream.streaming.conf.jobconf import JobConf

TEMPORARY = "_temporary"
SUCCESS = "_SUCCESS"


class OutputExists(UserError, FileExistsError):
    """The output directory is there already; nothing is ever written into an existing one."""

    exit_status: ClassVar[int] = 5


class BadCommitter(UserError):
    """The job asks for a commit algorithm that does not exist."""


class Committer:
    """The output directory of one job, from `setup_job` to `commit_job` or `abort_job`.

    D3: a file has its final name if and only if its task committed and the file is complete.
    Every method may be repeated: a master that lost the answer asks again.
    """

    def __init__(self, conf: JobConf, output_url: str, files: Files) -> None:
        self._files = files
        self.output_url = files.qualify(output_url)
        self._algorithm = conf.committer_version
        if self._algorithm not in (1, 2):
            raise BadCommitter("Only 1 or 2 algorithm version is supported")
        if conf.outputs:
            # Several files of a task appear together: by one rename of their directory, and for
            # readers when the job is done.
            self._algorithm = 1
        self._mark_success = conf.mark_success
        self._overwrites = conf.overwrites_output
        self._job_temporary = join(self.output_url, TEMPORARY, "0")

    def check_output(self, inputs: Sequence[str] = ()) -> None:
        """Refuse an output directory that exists, in Hadoop's words; not an empty one, which a
        failed job leaves. One to be overwritten must be the output of a job, and no input."""
        if not self._files.exists(self.output_url):
            return
        status = self._files.status(self.output_url)
        there = self._files.list(self.output_url) if status and status.is_directory else None
        if there == []:
            return
        if not self._overwrites:
            raise OutputExists(f"Output directory {self.output_url} already exists")
        if there is None or not any(_is_of_a_job(entry.name) for entry in there):
            raise OutputExists(
                f"{self.output_url} is not the output of a job (it has no {SUCCESS} and no part "
                "files): -overwrite leaves it alone; delete it yourself if you mean it"
            )
        inside = f"{self.output_url.rstrip('/')}/"
        for url in map(self._files.qualify, inputs):
            if f"{url.rstrip('/')}/".startswith(inside):
                raise OutputExists(f"-overwrite would delete the input {url}")

    def clear_output(self) -> None:
        """Delete what an earlier job left, if this job shall overwrite it and `check_output` let it
        pass; called when all else about the job is known to be right."""
        if self._overwrites and self._files.exists(self.output_url):
            self._files.delete(self.output_url)

    def setup_job(self) -> None:
        """Make the output directory and the room for attempts."""
        self._files.mkdirs(self._job_temporary)

    def take_output(self) -> None:
        """As `setup_job`, of a job whose master knows of no other: of two that found nothing here
        the second finds the other's room, and is refused."""
        try:
            self._files.make_new(join(self.output_url, TEMPORARY))
        except FileExistsError:
            raise self._begun() from None
        self.setup_job()

    def _begun(self) -> OutputExists:
        return OutputExists(
            f"Output directory {self.output_url} already exists: another job has begun to write it"
        )

    def attempt_dir(self, attempt_id: str) -> str:
        """Where an attempt writes: its part file and any side files of the user's program."""
        return join(self._job_temporary, TEMPORARY, attempt_id)

    def setup_task(self, attempt_id: str) -> str:
        """Make the attempt's directory and give its URL."""
        directory = self.attempt_dir(attempt_id)
        self._files.mkdirs(directory)
        return directory

    def commit_task(self, attempt_id: str) -> bool:
        """Publish everything that the attempt wrote; the caller makes sure that only one attempt
        of a task does. Says whether there was anything: even without output there is its place."""
        directory = self.attempt_dir(attempt_id)
        if self._files.status(directory) is None:
            return False
        if self._algorithm == 1:
            committed = join(self._job_temporary, task_of(attempt_id))
            self._files.delete(committed)
            self._files.rename(directory, committed)
        else:
            self._merge(directory, self.output_url)
            self._files.delete(directory)
        return True

    def abort_task(self, attempt_id: str) -> None:
        """Throw away what the attempt wrote."""
        self._files.delete(self.attempt_dir(attempt_id))

    def drop_attempts(self, job_id: str) -> None:
        """Throw away what attempts of a job wrote that may change nothing else here any more: what
        bears its id, and no directory above, since those may be a later job's by now."""
        of_job = job_id.removeprefix("job")
        for room in (join(self._job_temporary, TEMPORARY), self._job_temporary):
            if self._files.status(room) is None:
                continue
            for entry in self._files.list(room):
                if entry.name.startswith((f"attempt{of_job}_", f"task{of_job}_")):
                    self._files.delete(entry.url)

    def commit_job(self) -> None:
        """Publish what is not yet published, clear up, and say that all is there."""
        if self._algorithm == 1 and self._files.status(self._job_temporary) is not None:
            for committed in self._files.list(self._job_temporary):
                if committed.name != TEMPORARY:
                    self._merge(committed.url, self.output_url)
        self._clear()
        if self._mark_success:
            self._files.create(join(self.output_url, SUCCESS)).close()

    def abort_job(self, *, is_killed: bool) -> None:
        """Clear up after a failed job; the directory stays, and with algorithm 2 the committed
        parts in it. One that was made in vain goes too if a person stopped the job."""
        self._clear()
        # In an object store a directory is gone with the last of what is below it.
        there = is_killed and self._files.exists(self.output_url)
        if there and not self._files.list(self.output_url):
            self._files.delete(self.output_url)

    def _clear(self) -> None:
        self._files.delete(join(self.output_url, TEMPORARY))

    def _merge(self, source: str, target: str) -> None:
        """Move the tree below `source` over the tree below `target`, file by file."""
        for entry in self._files.list(source):
            self._merge_entry(entry, join(target, entry.name))

    def _merge_entry(self, entry: FileStatus, target: str) -> None:
        there = self._files.status(target)
        if not entry.is_directory:
            if there is not None and there.is_directory:
                self._files.delete(target)
            self._files.rename(entry.url, target)
        elif there is not None and there.is_directory:
            self._merge(entry.url, target)
        else:
            if there is not None:
                self._files.delete(target)
            self._files.rename(entry.url, target)


def committer_for(conf: JobConf, output_url: str, files: Files) -> Committer:
    if is_object_store(files.qualify(output_url)):
        from mrstream.mapreduce.dataflow.s3_committer import MultipartCommitter  # few jobs need it

        return MultipartCommitter(conf, output_url, files)
    return Committer(conf, output_url, files)


def publishes_at_once(conf: JobConf, output_url: str) -> bool:
    """Whether nothing of a job's output is seen before all of it is."""
    return conf.committer_version == 1 or bool(conf.outputs) or is_object_store(output_url)


def _is_of_a_job(name: str) -> bool:
    return name in (SUCCESS, TEMPORARY) or name.startswith("part-")


def task_of(attempt_id: str) -> str:
    """`attempt_1_0001_m_000000_0` is an attempt of `task_1_0001_m_000000`."""
    return "task" + attempt_id.removeprefix("attempt").rpartition("_")[0]
