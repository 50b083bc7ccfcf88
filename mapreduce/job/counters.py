"""Counters of tasks and jobs: Hadoop's own with Hadoop's meaning, and the users'.

Takes increments and other counters; gives totals and the block that ends a job's console output. A
counter of a failed or surplus attempt is never added (MapReduce §4.9): callers add only what
committed. Never prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mrstream.mapreduce.job.errors import TooManyCounters
from mrstream.streaming.java.java_number import wrap_long

FILE_SYSTEM = "File System Counters"
JOB = "Job Counters "
FRAMEWORK = "Map-Reduce Framework"
SHUFFLE_ERRORS = "Shuffle Errors"
FILE_INPUT = "File Input Format Counters "
FILE_OUTPUT = "File Output Format Counters "

MAP_INPUT_RECORDS = "Map input records"
MAP_OUTPUT_RECORDS = "Map output records"
MAP_SKIPPED_RECORDS = "Map skipped records"
REJECTED_RECORDS = "Rejected output records"
MAP_OUTPUT_BYTES = "Map output bytes"
MAP_OUTPUT_MATERIALIZED_BYTES = "Map output materialized bytes"
INPUT_SPLIT_BYTES = "Input split bytes"
COMBINE_INPUT_RECORDS = "Combine input records"
COMBINE_OUTPUT_RECORDS = "Combine output records"
REDUCE_INPUT_GROUPS = "Reduce input groups"
REDUCE_SHUFFLE_BYTES = "Reduce shuffle bytes"
REDUCE_INPUT_RECORDS = "Reduce input records"
REDUCE_OUTPUT_RECORDS = "Reduce output records"
REDUCE_SKIPPED_GROUPS = "Reduce skipped groups"
REDUCE_SKIPPED_RECORDS = "Reduce skipped records"
SPILLED_RECORDS = "Spilled Records"
SHUFFLED_MAPS = "Shuffled Maps "
FAILED_SHUFFLES = "Failed Shuffles"
MERGED_MAP_OUTPUTS = "Merged Map outputs"
CPU_MS = "CPU time spent (ms)"
PHYSICAL_MEMORY_BYTES = "Physical memory (bytes) snapshot"
PEAK_MAP_MEMORY_BYTES = "Peak Map Physical memory (bytes)"
PEAK_REDUCE_MEMORY_BYTES = "Peak Reduce Physical memory (bytes)"

BYTES_READ = "Bytes Read"
BYTES_WRITTEN = "Bytes Written"

LAUNCHED_MAPS = "Launched map tasks"
LAUNCHED_REDUCES = "Launched reduce tasks"
FAILED_MAPS = "Failed map tasks"
FAILED_REDUCES = "Failed reduce tasks"
KILLED_MAPS = "Killed map tasks"
KILLED_REDUCES = "Killed reduce tasks"
DATA_LOCAL_MAPS = "Data-local map tasks"
RACK_LOCAL_MAPS = "Rack-local map tasks"
OTHER_LOCAL_MAPS = "Other local map tasks"
MAPS_MS = "Total time spent by all map tasks (ms)"
REDUCES_MS = "Total time spent by all reduce tasks (ms)"

_ORDER = {
    JOB: (
        FAILED_MAPS,
        FAILED_REDUCES,
        KILLED_MAPS,
        KILLED_REDUCES,
        LAUNCHED_MAPS,
        LAUNCHED_REDUCES,
        OTHER_LOCAL_MAPS,
        DATA_LOCAL_MAPS,
        RACK_LOCAL_MAPS,
        MAPS_MS,
        REDUCES_MS,
    ),
    FRAMEWORK: (
        MAP_INPUT_RECORDS,
        MAP_OUTPUT_RECORDS,
        MAP_SKIPPED_RECORDS,
        REJECTED_RECORDS,
        MAP_OUTPUT_BYTES,
        MAP_OUTPUT_MATERIALIZED_BYTES,
        INPUT_SPLIT_BYTES,
        COMBINE_INPUT_RECORDS,
        COMBINE_OUTPUT_RECORDS,
        REDUCE_INPUT_GROUPS,
        REDUCE_SHUFFLE_BYTES,
        REDUCE_INPUT_RECORDS,
        REDUCE_OUTPUT_RECORDS,
        REDUCE_SKIPPED_GROUPS,
        REDUCE_SKIPPED_RECORDS,
        SPILLED_RECORDS,
        SHUFFLED_MAPS,
        FAILED_SHUFFLES,
        MERGED_MAP_OUTPUTS,
        CPU_MS,
        PHYSICAL_MEMORY_BYTES,
        PEAK_MAP_MEMORY_BYTES,
        PEAK_REDUCE_MEMORY_BYTES,
    ),
    SHUFFLE_ERRORS: (
        "BAD_ID",
        "CONNECTION",
        "IO_ERROR",
        "WRONG_LENGTH",
        "WRONG_MAP",
        "WRONG_REDUCE",
    ),
}
_FIRST_GROUPS = (FILE_SYSTEM, JOB, FRAMEWORK)
# Hadoop sorts the other groups by these names, which it does not show.
_INTERNAL_NAMES = {
    FILE_INPUT: "org.apache.hadoop.mapreduce.lib.input.FileInputFormatCounter",
    FILE_OUTPUT: "org.apache.hadoop.mapreduce.lib.output.FileOutputFormatCounter",
}
_FRAMEWORK_GROUPS = frozenset((*_FIRST_GROUPS, SHUFFLE_ERRORS, FILE_INPUT, FILE_OUTPUT))
# A program may add to Hadoop's own counters by their names in Java.
_TASK_COUNTERS = {
    "MAP_INPUT_RECORDS": MAP_INPUT_RECORDS,
    "MAP_OUTPUT_RECORDS": MAP_OUTPUT_RECORDS,
    "MAP_SKIPPED_RECORDS": MAP_SKIPPED_RECORDS,
    "MAP_OUTPUT_BYTES": MAP_OUTPUT_BYTES,
    "MAP_OUTPUT_MATERIALIZED_BYTES": MAP_OUTPUT_MATERIALIZED_BYTES,
    "SPLIT_RAW_BYTES": INPUT_SPLIT_BYTES,
    "COMBINE_INPUT_RECORDS": COMBINE_INPUT_RECORDS,
    "COMBINE_OUTPUT_RECORDS": COMBINE_OUTPUT_RECORDS,
    "REDUCE_INPUT_GROUPS": REDUCE_INPUT_GROUPS,
    "REDUCE_SHUFFLE_BYTES": REDUCE_SHUFFLE_BYTES,
    "REDUCE_INPUT_RECORDS": REDUCE_INPUT_RECORDS,
    "REDUCE_OUTPUT_RECORDS": REDUCE_OUTPUT_RECORDS,
    "REDUCE_SKIPPED_GROUPS": REDUCE_SKIPPED_GROUPS,
    "REDUCE_SKIPPED_RECORDS": REDUCE_SKIPPED_RECORDS,
    "SPILLED_RECORDS": SPILLED_RECORDS,
    "SHUFFLED_MAPS": SHUFFLED_MAPS,
    "FAILED_SHUFFLE": FAILED_SHUFFLES,
    "MERGED_MAP_OUTPUTS": MERGED_MAP_OUTPUTS,
    "CPU_MILLISECONDS": CPU_MS,
    "PHYSICAL_MEMORY_BYTES": PHYSICAL_MEMORY_BYTES,
}
_JAVA_GROUPS = {
    "org.apache.hadoop.mapreduce.TaskCounter": (FRAMEWORK, _TASK_COUNTERS),
    "org.apache.hadoop.mapred.Task$Counter": (FRAMEWORK, _TASK_COUNTERS),
    _INTERNAL_NAMES[FILE_INPUT]: (FILE_INPUT, {"BYTES_READ": BYTES_READ}),
    _INTERNAL_NAMES[FILE_OUTPUT]: (FILE_OUTPUT, {"BYTES_WRITTEN": BYTES_WRITTEN}),
}
# A snapshot of memory is the largest of its kind, not a sum over tasks that ran one after another.
_MAXIMA = frozenset((PEAK_MAP_MEMORY_BYTES, PEAK_REDUCE_MEMORY_BYTES))

USER_COUNTERS_MAX = 120
USER_GROUPS_MAX = 50
COUNTER_NAME_CHARS_MAX = 64
GROUP_NAME_CHARS_MAX = 128


NO_LIMIT = 1 << 30
"""Of users' counters, where they were counted within a limit before."""


def find_counter(totals: Mapping[str, Mapping[str, int]], group: str, name: str) -> int | None:
    """Return one counter; the blanks at the end of some of Hadoop's names are nobody's to type."""
    for known, counters in totals.items():
        for counter, value in counters.items():
            if (known.strip(), counter.strip()) == (group.strip(), name.strip()):
                return value
    return None


def dump_of(totals: Mapping[str, Mapping[str, int]]) -> str:
    return Counters(totals, user_counters_max=NO_LIMIT).dump()


class Counters:
    """Named 64-bit numbers in named groups; the users' are limited in number."""

    def __init__(
        self,
        totals: Mapping[str, Mapping[str, int]] | None = None,
        *,
        user_counters_max: int = USER_COUNTERS_MAX,
    ) -> None:
        self._groups: dict[str, dict[str, int]] = {}
        self._user_counters_max = user_counters_max
        self._user_counters_count = 0
        self._user_groups_count = 0
        if totals is not None:
            self.add_all(totals)

    def add(self, group: str, name: str, amount: int) -> None:
        """Add to one of our own counters, or to a user's that is known to be within the limits."""
        if group not in _FRAMEWORK_GROUPS:
            self._make_room(group, name)
        counters = self._groups.setdefault(group, {})
        if name in _MAXIMA:
            counters[name] = max(counters.get(name, 0), amount)
        else:
            counters[name] = wrap_long(counters.get(name, 0) + amount)

    def framework(self, name: str, amount: int) -> None:
        """Add to a counter of the group `Map-Reduce Framework`."""
        self.add(FRAMEWORK, name, amount)

    def add_user(self, group: str, name: str, amount: int) -> None:
        """Add to a counter that a program named; over-long names are cut as Hadoop cuts them. In
        a group of Hadoop's own only its own counters count."""
        if group in _JAVA_GROUPS:
            own, names = _JAVA_GROUPS[group]
            if name in names:
                self.add(own, names[name], amount)
            return
        self.add(_cut(group, GROUP_NAME_CHARS_MAX), _cut(name, COUNTER_NAME_CHARS_MAX), amount)

    def add_all(self, other: Counters | Mapping[str, Mapping[str, int]]) -> None:
        groups = other._groups if isinstance(other, Counters) else other
        for group, counters in groups.items():
            for name, amount in counters.items():
                self.add(group, name, amount)

    def get(self, group: str, name: str) -> int:
        """Return a counter's value; 0 if it was never touched."""
        return self._groups.get(group, {}).get(name, 0)

    def value(self, name: str) -> int:
        """Return a counter of the group `Map-Reduce Framework`."""
        return self.get(FRAMEWORK, name)

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Return plain dictionaries, for the wire and for reports."""
        return {group: dict(counters) for group, counters in self._groups.items()}

    def __len__(self) -> int:
        return sum(len(counters) for counters in self._groups.values())

    def __iter__(self) -> Iterator[tuple[str, list[tuple[str, int]]]]:
        """Yield the groups and their counters in the order in which Hadoop prints them."""
        first = [group for group in _FIRST_GROUPS if group in self._groups]
        others = [group for group in self._groups if group not in _FIRST_GROUPS]
        others.sort(key=lambda group: _INTERNAL_NAMES.get(group, group))
        for group in (*first, *others):
            yield group, _in_order(group, self._groups[group])

    def dump(self) -> str:
        """Return the block that ends a job: `Counters: N` and a line for each."""
        lines = [f"Counters: {len(self)}"]
        for group, counters in self:
            lines.append(f"\t{group}")
            lines += [f"\t\t{name}={amount}" for name, amount in counters]
        return "\n".join(lines)

    def _make_room(self, group: str, name: str) -> None:
        """Count a user's new counter, and refuse it beyond the limits."""
        known = self._groups.get(group)
        if known is not None and name in known:
            return
        if self._user_counters_count >= self._user_counters_max:
            raise TooManyCounters(
                f"Too many counters: {self._user_counters_count + 1} max={self._user_counters_max}"
                f" ({group!r}, {name!r} is one too many; mapreduce.job.counters.max sets the limit)"
            )
        if known is None:
            if self._user_groups_count >= USER_GROUPS_MAX:
                raise TooManyCounters(
                    f"Too many counter groups: {self._user_groups_count + 1} max={USER_GROUPS_MAX}"
                    f" ({group!r} is one too many)"
                )
            self._user_groups_count += 1
        self._user_counters_count += 1


def _cut(name: str, chars_max: int) -> str:
    return name if len(name) <= chars_max else name[: chars_max - 1]


def _in_order(group: str, counters: Mapping[str, int]) -> list[tuple[str, int]]:
    rank = {name: index for index, name in enumerate(_ORDER.get(group, ()))}
    return sorted(counters.items(), key=lambda item: (rank.get(item[0], len(rank)), item[0]))
