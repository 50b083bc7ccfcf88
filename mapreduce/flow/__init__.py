"""Chains of jobs: a graph of steps that survives any crash and runs nothing twice.

`brain/` decides without IO what can run; `runner` runs it and keeps the journal; `file` reads
`flow.yaml`. Invariants: P1 a step's output is visible whole or not at all · P2 a resumed flow runs
nothing whose fingerprint is unchanged and complete · P3 the brain does no IO.
"""
