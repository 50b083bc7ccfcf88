"""The scheduler's brain: events in, commands out (MapReduce §3).

`Scheduler.handle(event, now_s) -> list[Command]` is the only door. `events` and `commands`
are the vocabulary, `ids` the names, `limits` the numbers. Inside: `task` (the life of a
task), `phases` (a job), `workers`, `locality` (idle maps near their data), `slots` and
`attempts` (an attempt's life), `outputs` (segments and their loss), `ending`, `registration`
(workers and jobs that come back), `assignment` (free slots meet idle tasks), `backup`
(stragglers), `story`.

Invariants, checked by `invariants` after events in the simulator:

S1  a task has at most one committed attempt
S2  a reduce fetches only from committed maps
S3  a lost worker un-commits its maps while a reduce still needs them, never its reduces
S4  at most two running attempts of a task; at most `attempts_max` failures of it
S5  running attempts on a worker, those being killed too, never exceed its slots
S6  same events, same commands

Absent on purpose: no clock, no chance, no files, no sockets, no log, no states for
"cancelled". An attempt is a process; to cancel it is to kill it.
"""
