"""What `-help`, `-info` and a mistaken command line print.

Made from the tables of `streaming.command.options`, so that no option is missing here.
"""

from __future__ import annotations

from collections.abc import Iterable

from mrstream.streaming.command.options import (
    GENERIC_OPTIONS,
    OWN_COMMANDS,
    OWN_OPTIONS,
    STREAMING_OPTIONS,
    Option,
)

SHORT = """\
Usage: mapred streaming [options]
Usage: mrstream [options]
Tools: mrstream dumptb GLOB      print files as typed bytes
       mrstream loadtb PATH      typed bytes from stdin into a sequence file
       mrstream cluster …        start, stop and look after a cluster of hosts
       mrstream dfs …            the files of the cluster, with the verbs of hdfs dfs
       mrstream job …            jobs, past and present, with the verbs of mapred job
       mrstream flow …           chains of jobs from a file, which can be resumed
       mrstream hadoop-commands DIR   writes hadoop, hdfs, mapred and yarn: mrjob, Luigi, scripts
       mrstream top              watch jobs, hosts and files; --demo needs no cluster
       mrstream web              the same in a browser
       mrstream key …            keys for programs that come over HTTP
       mrstream lock …           small files and locks that a whole cluster agrees on
       mrstream saw …            run a Sawzall program over files; dump … prints its tables
       mrstream p4 …             the MapReduce server of a course: master, worker, submit
       mrstream completion bash  what a shell's Tab needs; zsh, man: a manual page
       mrstream --version
Try -help for more information"""

_HEAD = """\
Usage: mrstream [options]
with the options of
Usage: $HADOOP_HOME/bin/hadoop jar hadoop-streaming.jar [options]"""

_TIPS = """\
Usage tips:
In a command no shell is at work: for pipes and variables write -mapper "bash -c '…'".
A word of a command that names a local file is shipped with the job; for other files use
-files a,b#name and find them in the working directory of the task as a and name.
A .py file needs neither a run bit nor a #! line.

Maps only, no sort:                    -numReduceTasks 0, or -reducer NONE
Key of two fields, cut at a dot:       -D stream.map.output.field.separator=. \\
                                       -D stream.num.map.output.key.fields=2
Partition by the first field, sort by both, the second as a number, downwards:
    -partitioner KeyFieldBasedPartitioner
    -D mapreduce.partition.keypartitioner.options=-k1,1
    -D mapreduce.job.output.key.comparator.class=KeyFieldBasedComparator
    -D mapreduce.partition.keycomparator.options='-k1,1 -k2,2nr'
Compressed output:                     -D mapreduce.output.fileoutputformat.compress=true
                                       -D mapreduce.output.fileoutputformat.compress.codec=GzipCodec
The name of the job:                   -D mapreduce.job.name='My Job'
No limit on silence of a task:         -D mapreduce.task.timeout=0

A program sees the properties of the job in its environment: mapreduce.job.id is
mapreduce_job_id. It counts with a line on stderr, reporter:counter:GROUP,NAME,AMOUNT, and says
what it is doing with reporter:status:TEXT.

Counting words:
    mrstream -input books -output counts -mapper 'tr -s " " "\\n"' -reducer 'uniq -c'"""


def full() -> str:
    """Return the text of `-help`."""
    return "\n".join(
        [
            _HEAD,
            "Options:",
            *_lines(STREAMING_OPTIONS),
            "Generic options, which may stand anywhere:",
            *_lines(GENERIC_OPTIONS),
            "Options of mrstream's own:",
            *_lines((*OWN_OPTIONS, *OWN_COMMANDS)),
            "Other commands, each with a --help of its own: mrstream cluster, dfs, job, top, web,",
            "key, lock, flow, saw, dump, p4, hadoop-commands",
            "For more details about these options: mrstream -info",
        ]
    )


def detailed() -> str:
    """Return the text of `-info`."""
    return f"{full()}\n\n{_TIPS}"


def _lines(options: Iterable[Option]) -> list[str]:
    return [_line(option) for option in options]


def _line(option: Option) -> str:
    head = f"  -{option.name} {option.value}".rstrip()
    says = option.says
    if option.instead:
        says += f" (deprecated, please use {option.instead} instead)"
    return f"{head:<32} {says}"
