"""Runs users' programs as Hadoop runs them: all of it in one room, below the stages.

    command    a task's command, its directory and environment; blobs   → what it writes, judged
    watch      signs of life                  → a program that gives none for too long is ended
    pump       a process and blobs            → its output, what it says, its exit code
    spawn      words, directory, environment  → a process in a group of its own, and three pipes
    children   what came from this process    → found, adopted, ended
    ending     exit code and flow             → nothing, or CommandFailed
    flow       how far the input got
    errors     how a program fails its task

Each knows only what stands below it, and none of records, tasks or jobs. The contract with the
program itself, its words, links and variables, is `streaming.task`'s.
"""
