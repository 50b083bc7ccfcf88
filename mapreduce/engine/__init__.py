"""Jobs on somebody else's engine: Ray, Spark, Hadoop. The engine brings workers, their recovery and
a shuffle; splits, attempts, segments, the committer, counters and reports stay ours.

E1: a task's output is committed once, by the driver, whatever the engine repeats.
E2: the bytes of a job do not depend on where it ran.

Nothing here knows a daemon of ours, and no engine is imported before a job asks for it.
"""
